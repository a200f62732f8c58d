"""Initial weights: from a Hugging Face checkpoint, from assay's checkpoint or export, or any of these nudged."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from assay.config import ModelConfig, ResolvedRun

Initialize = Callable[[str, torch.Size], Tensor]


def initial_weights(folder: Path, config: ModelConfig) -> dict[str, Tensor]:
    """Read weights by assay's names from a folder of either kind.

    Raises `UsageError` if they cannot be read or do not fit the configuration.
    """
    from assay.config.hf import is_hugging_face
    from assay.model.hf import load_hf
    from assay.model.weights import read_weights

    return load_hf(folder, config) if is_hugging_face(folder) else read_weights(folder, config)


def given_weights(weights: Mapping[str, Tensor]) -> Initialize:
    """Return an initialization that takes its values from `weights`; it raises `ValueError` if a shape differs."""

    def initialize(name: str, shape: torch.Size) -> Tensor:
        if weights[name].shape != shape:
            raise ValueError(f"{name} has shape {list(weights[name].shape)}, but the model needs {list(shape)}")
        return weights[name]

    return initialize


def nudge_weights(initialize: Initialize, draw: int) -> Initialize:
    """Return an initialization that moves each value of `initialize` up or down by one unit in the last place.

    The directions are a pure function of (draw, parameter name). A zero stays: its neighbours are subnormal.
    """

    def moved(name: str, shape: torch.Size) -> Tensor:
        value = initialize(name, shape)
        digest = hashlib.sha256(f"nudge {draw}/{name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        infinite = torch.full_like(value, torch.inf)
        towards = torch.where(torch.rand(shape, generator=generator) < 0.5, infinite, -infinite)
        return torch.where(value == 0, value, torch.nextafter(value, towards))

    return moved


def named_weights(run: ResolvedRun, drawn: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the first weights of a run that names a folder, by the names and shapes of those that its seed draws.

    Raises `UsageError` like `initial_weights`.
    """
    begin = given_weights(initial_weights(Path(run.model.init_from or ""), run.model))
    if run.nudge:
        begin = nudge_weights(begin, run.nudge)
    return {name: begin(name, one.shape) for name, one in drawn.items()}
