"""AdamW in one kernel, wrong."""

from typing import Any

import torch

from assay.config import Run
from assay.step.program import OptimizerLike, Step
from optimizations.mutations.mutant import LATE, Mutant, replaced, rewritten
from optimizations.mutations.rules import around, at_peak, decays_vectors, made, only, scaled, stops_late, tuned

_UPDATE, _DIVISOR = (f"assay.optimizers.clipping:{name}" for name in ("clipping_inside", "divisor"))
_GIVEN = "optimizer.grad_scale, optimizer.found_inf = divisor(norm, clip), _not_finite(norm)"
_INSIDE = {"stack": "fused_adamw:clip=inside", "training": {"gradient_clip": 0.1}}
_BELOW = {**_INSIDE, "training": {"gradient_clip": 10.0}}


def _multiplied(step: Step, norm: torch.Tensor, clip: float) -> None:
    torch._foreach_mul_([one.grad for _, one in step.named_parameters()], clip / (norm + 1e-6))  # type: ignore[arg-type]


def _plain_late(optimizer: OptimizerLike, run: Run) -> None:
    states = list(optimizer.state.values())
    if states and float(states[0]["step"]) >= LATE:
        for group in optimizer.param_groups:
            group["fused"] = False


def _rounded(optimizer: OptimizerLike, run: Run) -> None:
    for state in optimizer.state.values():
        state["exp_avg_sq"].copy_(state["exp_avg_sq"].bfloat16())


def _amsgrad(optimizer: Any, run: Run) -> None:
    for group in optimizer.param_groups:
        group["amsgrad"] = True


MUTANTS = (
    Mutant(
        "every second weight",
        "The kernel is given every second weight only.",
        only("fused_adamw", lambda n, name: n % 2 == 0),
    ),
    Mutant(
        "last weight forgotten",
        "The list of weights ends one too early.",
        only("fused_adamw", lambda n, name: n != 51),
    ),
    Mutant("torch's betas", "The second moment decays by torch's 0.999.", tuned("fused_adamw", betas=(0.9, 0.999))),
    Mutant("no decay", "Nothing decays.", scaled("fused_adamw", "weight_decay", 0.0)),
    Mutant("biases decay", "Biases and gains decay.", decays_vectors("fused_adamw")),
    Mutant("AMSGrad", "The denominator is the largest second moment so far.", made("fused_adamw", _amsgrad)),
    Mutant("no schedule", "The learning rate is always the largest.", at_peak("fused_adamw")),
    Mutant("state in 16 bits", "The second moment is rounded to bfloat16.", around("fused_adamw", after=_rounded)),
    Mutant(
        "clips nothing inside",
        "The kernel is given no divisor.",
        rewritten(_UPDATE, (_GIVEN, "optimizer.found_inf = _not_finite(norm)")),
        _INSIDE,
    ),
    Mutant(
        "enlarges inside",
        "The kernel divides by the factor of clipping instead of its inverse.",
        rewritten(_DIVISOR, ("(norm + _EPSILON) / clip", "clip / (norm + _EPSILON)")),
        _INSIDE,
    ),
    Mutant(
        "always clips inside",
        "Gradients below the limit are enlarged to it.",
        rewritten(_DIVISOR, ("torch.where(norm > clip, (norm + _EPSILON) / clip, 1.0)", "(norm + _EPSILON) / clip")),
        _BELOW,
    ),
    Mutant(
        "clips twice",
        "All gradients are multiplied as well, before the kernel.",
        rewritten(_UPDATE, (_GIVEN, f"{_GIVEN}; multiplied(step, norm, clip)"), multiplied=_multiplied),
        _INSIDE,
    ),
    Mutant(
        "apart, not inside",
        "Gradients are clipped in a pass of their own, and the kernel is given nothing.",
        rewritten(_UPDATE, (_GIVEN, "multiplied(step, norm, clip)"), multiplied=_multiplied),
        _INSIDE,
    ),
    Mutant(
        "clips nothing inside late",
        "Late in the run the kernel divides by 1.",
        replaced(_DIVISOR, lambda norm, clip: norm.new_ones(()), late=True),
        _INSIDE,
        late=True,
    ),
    Mutant(
        "plain late",
        "Late in the run the update is torch's plain loop.",
        around("fused_adamw", before=_plain_late),
        late=True,
    ),
    Mutant(
        "stops late",
        "Late in the run every second weight stands still.",
        stops_late("fused_adamw", lambda n: n % 2 == 0),
        late=True,
    ),
)
