"""Hugging Face GPT-2 checkpoints, in and out: `config.json` and safetensors, in one file or in shards.

The tensors' names and layouts are the business of `hf_tensors`; here are the files and the configuration. Nothing is
ever unpickled. A checkpoint with more positions than the configuration's context gives its first ones: a causal decoder
computes the same on shorter inputs. Of GPT-2's three dropouts, which training may choose anew, resid_pdrop is read.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from assay.config import ModelConfig
from assay.errors import UsageError
from assay.model.hf_tensors import ACTIVATIONS, from_hf, to_hf
from assay.model.norms import EPSILON
from assay.model.weights import CONFIG, WEIGHTS, new_folder, read_safetensors, write_json, write_safetensors

_FIXED = {
    "layer_norm_epsilon": EPSILON,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}
"""What changes the function that a GPT-2 configuration describes, at the only values that are ours."""


def load_hf(folder: Path | str, config: ModelConfig) -> dict[str, Tensor]:
    """Weights of a GPT-2 checkpoint folder, float32, by our names; a tied output projection is left out.

    Raises `UsageError` for a missing or unreadable file, another kind of model, a configuration that does not agree
    with the checkpoint's, and a tensor that is missing, of another shape, or unknown.
    """
    folder = Path(folder)
    _agree(folder, config_from_hf(folder), config)
    return from_hf(_read(folder), config, folder)


def save_hf(state: Mapping[str, Tensor], config: ModelConfig, folder: Path | str) -> None:
    """Write `config.json` and `model.safetensors` as transformers' GPT2LMHeadModel reads them, whole or not at all.

    Raises `UsageError` when GPT-2 cannot express `config`, `state` does not fit it or the folder is not empty, and
    `StorageError` when the disk refuses.
    """
    tensors = to_hf(state, config)
    with new_folder(Path(folder)) as made:
        write_safetensors(tensors, made / WEIGHTS)
        write_json(_hf_config(config), made / CONFIG)


def config_from_hf(folder: Path | str) -> ModelConfig:
    """The configuration of a GPT-2 checkpoint folder. Raises `UsageError` when it cannot be read or expressed."""
    path = Path(folder) / CONFIG
    values = _json(path)
    if values.get("model_type") != "gpt2":
        raise UsageError(f"{path} describes a model of type {values.get('model_type')!r}; only 'gpt2' can be read")
    activation = values.get("activation_function", "gelu_new")
    if activation not in ACTIVATIONS:
        raise UsageError(f"{path} has activation_function={activation!r}; only {', '.join(ACTIVATIONS)} can be read")
    for name, needed in _FIXED.items():
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


def _agree(folder: Path, theirs: ModelConfig, ours: ModelConfig) -> None:
    """Raises `UsageError` where the checkpoint's configuration and the run's are not the same function."""
    same = ("n_layer", "n_head", "n_embd", "vocab_size", "activation", "tie_embeddings")
    pairs = [(name, getattr(theirs, name), getattr(ours, name)) for name in same]
    for name, has, wants in [*pairs, ("n_hidden", theirs.hidden, ours.hidden)]:
        if has != wants:
            raise UsageError(f"{folder} has {name}={has}, and the configuration {wants}; set model.{name}={has}")
    if theirs.context_length < ours.context_length:
        raise UsageError(
            f"{folder} has {theirs.context_length} positions, and the configuration a context of "
            f"{ours.context_length}; set model.context_length={theirs.context_length} or less"
        )


def _hf_config(config: ModelConfig) -> dict[str, Any]:
    activation = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation)
    dropouts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), config.dropout)
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocabulary,
        "n_positions": config.context_length,
        "n_ctx": config.context_length,
        "n_embd": config.n_embd,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_inner": config.hidden,
        "activation_function": activation,
        "initializer_range": config.init_std,
        "tie_word_embeddings": config.tie_embeddings,
        "bias": config.bias,
        "bos_token_id": None,
        "eos_token_id": None,
        **dropouts,
        **_FIXED,
    }


def _read(folder: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint folder, in one file or in the shards that an index lists."""
    index = folder / f"{WEIGHTS}.index.json"
    if (folder / WEIGHTS).exists():
        return read_safetensors(folder / WEIGHTS)
    if not index.exists():
        pickled = next(folder.glob("*.bin"), None)
        hint = f"{pickled.name} is a pickle and is not opened; convert it to" if pickled else "the folder needs"
        raise UsageError(f"{folder} has no {WEIGHTS}; {hint} {WEIGHTS}")
    shards = _json(index).get("weight_map")
    if not isinstance(shards, dict) or not all(Path(str(shard)).name == shard for shard in shards.values()):
        raise UsageError(f"{index} does not list shards of this folder; download it again")
    files = {shard: read_safetensors(folder / shard) for shard in sorted(set(shards.values()))}
    for name, shard in shards.items():
        if name not in files[shard]:
            raise UsageError(f"{folder / shard} has no tensor {name!r}, which the index promises; download it again")
    return {name: files[shard][name] for name, shard in shards.items()}


def _json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path} is missing; name a folder with a Hugging Face GPT-2 checkpoint") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if not isinstance(values, dict):
        raise UsageError(f"{path} is not a JSON object; download it again")
    return values
