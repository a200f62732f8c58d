"""Weights to start from that are there already: a Hugging Face GPT-2 checkpoint, or a checkpoint or export of ours."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from assay.config import ModelConfig
from assay.config.gpt2 import is_hugging_face
from assay.model.hf import load_hf
from assay.model.weights import read_weights

Initialize = Callable[[str, torch.Size], Tensor]


def initial_weights(folder: Path, config: ModelConfig) -> dict[str, Tensor]:
    """Weights by our names from a folder of either kind. Raises `UsageError` when they cannot be read or do not fit."""
    return load_hf(folder, config) if is_hugging_face(folder) else read_weights(folder, config)


def given(weights: Mapping[str, Tensor]) -> Initialize:
    """An initialization that hands out `weights`."""

    def initialize(name: str, shape: torch.Size) -> Tensor:
        if weights[name].shape != shape:
            raise ValueError(f"{name} has shape {list(weights[name].shape)}, and the model wants {list(shape)}")
        return weights[name]

    return initialize
