"""Weights to start from that are there already: a Hugging Face GPT-2 checkpoint, or a checkpoint or export of ours."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from assay.config import ModelConfig
from assay.model.hf import load_hf
from assay.model.weights import CONFIG, read_weights

Initialize = Callable[[str, torch.Size], Tensor]


def initial_weights(folder: Path, config: ModelConfig) -> dict[str, Tensor]:
    """Weights by our names from a folder of either kind. Raises `UsageError` when they cannot be read or do not fit."""
    return load_hf(folder, config) if _is_hugging_face(folder) else read_weights(folder, config)


def _is_hugging_face(folder: Path) -> bool:
    """Whether `config.json` names the type of its model, as theirs does and ours does not."""
    try:
        return "model_type" in json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return False


def given(weights: Mapping[str, Tensor]) -> Initialize:
    """An initialization that hands out `weights`."""

    def initialize(name: str, shape: torch.Size) -> Tensor:
        if weights[name].shape != shape:
            raise ValueError(f"{name} has shape {list(weights[name].shape)}, and the model wants {list(shape)}")
        return weights[name]

    return initialize
