"""Bugs of numbers that are held or made with fewer bits than was said."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.config import Run
from assay.model import Block
from assay.model.gpt import Head
from assay.step.program import MicroBatch, OptimizerLike, Program, Step
from optimizations.mutations.mutant import Break, applied, rewritten

NORM_IN_16_BITS = rewritten(
    "assay.training.build:gradient_norm",
    ("gradients = _gradients(step)", "gradients = [one.bfloat16() for one in _gradients(step)]"),
    ("widest = torch.promote_types(gradients[0].dtype, torch.float32)", "widest = torch.bfloat16"),
)
"""The global norm of gradients is computed in bfloat16."""


def rounded(optimizer: OptimizerLike, run: Run) -> None:
    """Round every weight to bfloat16."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.data.copy_(parameter.data.bfloat16())


def wide_head(technique: str) -> Break:
    """Leave the head out of autocast."""
    return applied(technique, lambda program, run: _widened(program, Head, 1))


def wide_block(technique: str) -> Break:
    """Leave the first block out of autocast."""
    return applied(technique, lambda program, run: _widened(program, Block, 1))


def loss_in_16_bits(technique: str) -> Break:
    """Compute and sum the loss in the dtype of the logits."""

    def narrow(projection: nn.Module, x: Tensor, targets: Tensor) -> Tensor:
        logits = projection(x)
        with torch.autocast("cpu", enabled=False):
            return F.cross_entropy(logits, targets, reduction="sum")

    def change(program: Program, run: Run) -> Program:
        for module in (one for part in program.parts for one in part.modules() if isinstance(one, Head)):
            module.cross_entropy = narrow
        return program

    return applied(technique, change)


def stale_weights(technique: str) -> Break:
    """Cast weights once, in the first step, and use these copies ever after."""

    def change(program: Program, run: Run) -> Program:
        for layer in (one for part in program.parts for one in part.modules() if isinstance(one, nn.Linear)):
            layer.forward = _with_first_weights(layer)
        return program

    return applied(technique, change)


def updates_left_out(technique: str) -> Break:
    """Leave every second update out, without a word."""

    def change(program: Program, run: Run) -> Program:
        honest, done = program.precision.loss_scale.skip, [0]

        def skip(step: Any, norm: Tensor) -> bool:
            done[0] += 1
            return honest(step, norm) or done[0] % 2 == 0

        program.precision.loss_scale.skip = skip  # type: ignore[method-assign]
        return program

    return applied(technique, change)


def scale_of(technique: str, value: float) -> Break:
    """Begin with another loss scale."""

    def change(program: Program, run: Run) -> Program:
        program.precision.loss_scale.value = value
        return replace(program)

    return applied(technique, change)


def with_gradients(technique: str, change: Callable[[str, Tensor], Tensor]) -> Break:
    """Have `change` alter each gradient of a step after backward; it takes the parameter's name."""

    def altered(program: Program, run: Run) -> Program:
        honest = program.gradients

        def gradients(step: Step, micro_batches: Sequence[MicroBatch], tokens: int) -> Tensor:
            loss = honest(step, micro_batches, tokens)
            for name, one in step.named_parameters():
                if one.grad is not None:
                    one.grad.copy_(change(name, one.grad))
            return loss

        return replace(program, gradients=gradients)

    return applied(technique, altered)


def scaled(part: str, factor: float) -> Callable[[str, Tensor], Tensor]:
    """Multiply the gradients of parameters that have `part` in their name."""
    return lambda name, gradient: gradient * factor if part in name else gradient


def without_smallest(share: float) -> Callable[[str, Tensor], Tensor]:
    """Set the smallest elements of every gradient to zero."""

    def change(name: str, gradient: Tensor) -> Tensor:
        smallest = gradient.abs().flatten().kthvalue(max(1, int(share * gradient.numel()))).values
        return torch.where(gradient.abs() <= smallest, 0.0, gradient)

    return change


def noisy(part: str, share: float) -> Callable[[str, Tensor], Tensor]:
    """Add noise of a share of each element to the gradients of parameters that have `part` in their name."""
    generator = torch.Generator().manual_seed(0)

    def change(name: str, gradient: Tensor) -> Tensor:
        noise = share * torch.randn(gradient.shape, generator=generator)
        return gradient * (1 + noise) if part in name else gradient

    return change


NOT_UNSCALED = rewritten("assay.parallel.loss_scale:DynamicLossScale.unscale", ("1 / self.value", "1.0"))
"""Gradients keep the loss scale."""
UNSCALED_LATE = rewritten(
    "assay.training.build:updater",
    ("        scale.unscale(step)\n        norm", "        norm"),
    ("step.optimizer.step()", "(scale.unscale(step), step.optimizer.step())"),
)
"""Gradients are divided by the loss scale after they were clipped."""


def _with_first_weights(layer: nn.Linear) -> Any:
    first: list[Tensor] = []

    def forward(x: Tensor) -> Tensor:
        first.extend([] if first else [layer.weight.detach().clone()])
        return F.linear(x, first[0] + (layer.weight - layer.weight.detach()), layer.bias)

    return forward


def _widened(program: Program, kind: type[nn.Module], count: int) -> Program:
    modules = [one for part in program.parts for one in part.modules() if isinstance(one, kind)]
    for module in modules[:count]:
        module.forward = _wide(module)
    return program


def _wide(module: nn.Module) -> Any:
    inner = module.forward

    def forward(x: Tensor, *others: Tensor) -> Any:
        with torch.autocast("cpu", enabled=False):
            return inner(x.float(), *others)

    return forward
