"""Reads GPT-2's Hugging Face configuration as a `ModelConfig`, without torch."""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from assay.config.model import EPSILON, ModelConfig
from assay.config.reading import LONGEST_BYTES, read_bytes
from assay.errors import UsageError

CONFIG = "config.json"

ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh"}
"""Our activations by their Hugging Face names; an export writes the first name that matches."""

FIXED = {
    "layer_norm_epsilon": EPSILON,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}
"""Keys that change the function of a GPT-2 model, with the only values that our models support."""


def is_hugging_face(folder: Path) -> bool:
    """True if `config.json` has a `model_type`, as Hugging Face writes it and assay does not."""
    try:
        return "model_type" in json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def config_from_hf(folder: Path | str) -> ModelConfig:
    """Return the model of a GPT-2 checkpoint folder. Raises `UsageError` if it cannot be read or expressed."""
    path = Path(folder) / CONFIG
    values = read_json(path)
    if values.get("model_type") != "gpt2":
        raise UsageError(f"{path} describes a model of type {values.get('model_type')!r}; only 'gpt2' can be read")
    activation = values.get("activation_function", "gelu_new")
    if activation not in ACTIVATIONS:
        raise UsageError(f"{path} has activation_function={activation!r}; only {', '.join(ACTIVATIONS)} can be read")
    for name, needed in FIXED.items():
        if values.get(name, needed) != needed:
            raise UsageError(f"{path} has {name}={values[name]!r}; only {needed!r} can be read")
    fields = {
        "n_layer": values.get("n_layer", 12),
        "n_head": values.get("n_head", 12),
        "n_embd": values.get("n_embd", 768),
        "vocab_size": values.get("vocab_size", 50257),
        "context_length": values.get("n_positions", 1024),
        "n_hidden": values.get("n_inner"),
        "dropout": values.get("resid_pdrop", 0.1),
        "bias": values.get("bias", True),
        "activation": ACTIVATIONS[activation],
        "tie_embeddings": values.get("tie_word_embeddings", True),
        "init_std": values.get("initializer_range", 0.02),
    }
    try:
        return ModelConfig.model_validate(fields)
    except ValidationError as error:
        finding = error.errors()[0]
        place = ".".join(map(str, finding["loc"])) or "model"
        raise UsageError(
            f"{path} is not a GPT-2 configuration: {place}: {finding['msg']}; download it again"
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a checkpoint's JSON file. Raises `UsageError` if it is missing, unreadable or no object."""
    try:
        raw = read_bytes(path, LONGEST_BYTES)
        if raw is None:
            raise UsageError(f"{path} is longer than 1 MiB, so it is no configuration of a checkpoint")
        values = json.loads(raw.decode("utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path} is missing; name a folder with a Hugging Face GPT-2 checkpoint") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise UsageError(f"{path} is not a JSON object; download it again")
    return values
