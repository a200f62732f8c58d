"""Hugging Face configurations as `ModelConfig`, in both directions, without torch.

Each family of models has a file with its keys and their meanings. Values that change a model's function in a way that
ours cannot follow are refused, not ignored.
"""

import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from assay.config.hf import gpt2, llama
from assay.config.hf.checkpoint_files import read_json as read_json
from assay.config.model import ModelConfig
from assay.errors import UsageError

CONFIG = "config.json"
TYPES = {"gpt2": gpt2.read, **dict.fromkeys(llama.TYPES, llama.read)}
"""Function that reads each `model_type`."""
_OTHERS = {"smollm3": "in which some layers have no rotary positions, and assay rotates in all; name a SmolLM2"}
"""Reason why a model that looks like one of these is none, by its `model_type`."""


def is_hugging_face(folder: Path) -> bool:
    """True if `config.json` has a `model_type`, as Hugging Face writes it and assay does not.

    Raises `UsageError` if there is such a file that cannot be read.
    """
    path = folder / CONFIG
    return os.path.isfile(path) and "model_type" in read_json(path)


def config_from_hf(folder: Path | str) -> ModelConfig:
    """Return the model of a checkpoint folder. Raises `UsageError` if it cannot be read or expressed."""
    path = Path(folder) / CONFIG
    values = read_json(path)
    kind = values.get("model_type")
    if isinstance(kind, str) and kind in _OTHERS:
        raise UsageError(f"{path} describes a model of type {kind!r}, {_OTHERS[kind]}")
    if not isinstance(kind, str) or kind not in TYPES:
        raise UsageError(f"{path} describes a model of type {kind!r}; only {', '.join(TYPES)} can be read")
    if code := _own_code(values):
        raise UsageError(
            f"{path} has code of its own for its model ({code}), which may compute something else than a {kind}, and "
            f"assay runs no code of a checkpoint; if the model is an ordinary {kind}, take auto_map out of the file"
        )
    try:
        return ModelConfig.model_validate(TYPES[kind](values, path))
    except ValidationError as error:
        finding = error.errors()[0]
        place = ".".join(map(str, finding["loc"])) or "model"
        raise UsageError(
            f"{path} is not a configuration of {kind}: {place}: {finding['msg']}; download it again"
        ) from error


def _own_code(values: dict[str, Any]) -> str | None:
    """Return the class that a checkpoint's own code has for its model; None if there is none."""
    named = values.get("auto_map")
    classes = named.items() if isinstance(named, dict) else ()
    return next((str(one) for name, one in classes if name.startswith("AutoModel")), None)


def check_context(folder: Path, context_length: int) -> None:
    """Raise `UsageError` if a checkpoint's window, which our models lack, is shorter than the context of a run."""
    values = read_json(folder / CONFIG)
    window = llama.longest_context(values) if values.get("model_type") in llama.TYPES else None
    if window is not None and context_length > window:
        raise UsageError(
            f"{folder / CONFIG} has sliding_window={window}, which is shorter than a context of {context_length}, and "
            f"assay has no windows; set model.context_length={window}"
        )


def hf_config(config: ModelConfig) -> dict[str, Any]:
    """Return the `config.json` of a model that one of the families can express."""
    return llama.config_values(config) if llama.alike(config) else gpt2.config_values(config)
