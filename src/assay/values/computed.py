"""The loss and the gradients of one step of a reference, and whether the baseline is right."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from assay.reference.expected import Expected

_CLIP_EPSILON = 1e-6
_BASELINE_ERROR = 1e-3
"""Largest relative error of the float32 baseline's loss against float64; beyond it the baseline itself is wrong."""


@dataclass(frozen=True)
class Computed:
    """One step's loss in nats per token, and its gradients by parameter name after clipping."""

    loss: float
    gradients: dict[str, Tensor]
    log_norm: float
    """Natural logarithm of the norm of the gradients before clipping."""

    @cached_property
    def norms(self) -> dict[str, float]:
        """Euclidean norm of each gradient."""
        norm = torch.linalg.vector_norm
        return {name: float(norm(one, dtype=torch.float64)) for name, one in self.gradients.items()}

    @property
    def typical(self) -> float:
        """Root mean square of the elements of all gradients."""
        elements = sum(one.numel() for one in self.gradients.values())
        return math.sqrt(sum(one * one for one in self.norms.values()) / (elements or 1))


@dataclass(frozen=True)
class Rounded(Computed):
    """One step's loss and gradients where operations round as the run's optimizations do."""

    spread: float
    """Root mean square of the change of the loss if each rounding error had a sign by chance.

    Errors are those of weights and of the results of modules without submodules, such as linear layers.
    """


def norm_of(gradients: Mapping[str, Tensor]) -> float:
    """Return the Euclidean norm of all gradients together."""
    return math.sqrt(sum(float((one * one).sum()) for one in gradients.values()))


def clip_gradients(gradients: dict[str, Tensor], clip: float) -> dict[str, Tensor]:
    """Return the gradients, scaled to the norm `clip` if theirs is larger; 0 never clips."""
    norm = norm_of(gradients)
    factor = clip / (norm + _CLIP_EPSILON) if 0 < clip < norm else 1.0
    return {name: one * factor for name, one in gradients.items()}


class NoTruth(Exception):
    """There is nothing to compare values with, for the reason of the message."""


def baseline_failure(near: float, exact: float, expected: Expected) -> list[str]:
    """Return a sentence if the float32 baseline's loss is too far from float64's.

    A mixture may route a token elsewhere in float64, so its baseline is not judged. A model of a user's own is its own
    baseline. So if it computes something else in float64, there is no truth to compare with, and this raises `NoTruth`.
    """
    if expected.model.n_expert is not None or abs(near - exact) <= _BASELINE_ERROR * abs(exact):
        return []
    if expected.model.own is not None:
        raise NoTruth(
            f"{expected.model.own} computes another loss in float64, {exact:.6g} for {near:.6g}, so there is nothing "
            "to compare its values with"
        )
    return [f"the float32 baseline itself is wrong: its loss is {near:.6g}, and {exact:.6g} in float64"]
