"""The scale of gradients and weights by module, of a trained model or of one step of a program.

A step's gradients are read where its program measures their norm: unscaled, before clipping and the update. A technique
that frees gradients during backward has none there.
"""

from collections.abc import Iterable
from dataclasses import replace
from math import sqrt

import torch
from torch import Tensor

from assay.records.gradients import ModuleGradient
from assay.step.program import Step


def noting(step: Step, found: list[ModuleGradient]) -> Step:
    """Return the step with a program that also puts the scale of each module's gradient into `found`."""
    measure = step.program.gradient_norm

    def gradient_norm(now: Step) -> Tensor:
        named = ((name, one, one.grad) for name, one in now.named_parameters())
        found[:] = scales((name, one.detach(), gradient) for name, one, gradient in named if gradient is not None)
        return measure(now)

    return replace(step, program=replace(step.program, gradient_norm=gradient_norm))


def scales(gradients: Iterable[tuple[str, Tensor, Tensor]]) -> tuple[ModuleGradient, ...]:
    """Return the scale of each module from the name, weight and gradient of each parameter, in their order."""
    groups: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for name, weight, gradient in gradients:
        groups.setdefault(module_of(name), []).append((weight, gradient))
    return tuple(_module(title, members) for title, members in groups.items())


def module_of(parameter: str) -> str:
    """Return the module of a parameter: the embedding, a block by its number, the final norm, or the head."""
    parts = parameter.split(".")
    if parts[0] == "blocks":
        return f"block {int(parts[1]) + 1}"
    return "final norm" if parts[:2] == ["head", "norm"] else parts[0]


def _module(title: str, members: list[tuple[Tensor, Tensor]]) -> ModuleGradient:
    count = sum(weight.numel() for weight, _ in members)
    weights, gradients = (sum(map(_squares, each)) for each in zip(*members, strict=True))
    return ModuleGradient(
        module=title,
        parameters=count,
        gradient_rms=sqrt(gradients / count),
        gradient_norm=sqrt(gradients),
        weight_rms=sqrt(weights / count),
    )


def _squares(values: Tensor) -> float:
    """Return the sum of squares in float64: squares of small gradients are below the smallest number of float16."""
    return float(torch.linalg.vector_norm(values, dtype=torch.float64)) ** 2
