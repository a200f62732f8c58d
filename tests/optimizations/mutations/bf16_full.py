"""Everything in bfloat16, wrong."""

import torch

from assay.config import Run
from assay.step.program import OptimizerLike
from optimizations.mutations.mutant import Mutant, replaced, rewritten
from optimizations.mutations.precision import NORM_IN_16_BITS
from optimizations.mutations.rules import around, at_peak, only, scaled, tuned

_NAME = "bf16_full"


def _coarse(optimizer: OptimizerLike, run: Run) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.data.copy_(parameter.data.to(torch.float8_e5m2).to(parameter.dtype))


MUTANTS = (
    Mutant(
        "loss in 16 bits",
        "The loss is computed in bfloat16, too.",
        rewritten("assay.model.narrow:narrow", ("lift_logits(part)", "pass")),
    ),
    Mutant("nothing narrow", "Everything stays in float32.", replaced("assay.model.narrow:narrow", lambda *_: None)),
    Mutant("two bits", "Weights are rounded to two bits of mantissa after every update.", around(_NAME, after=_coarse)),
    Mutant("no decay", "Nothing decays.", scaled(_NAME, "weight_decay", 0.0), {"training": {"weight_decay": 10.0}}),
    Mutant("slow moments", "The first moment decays by 0.99 in place of 0.9.", tuned(_NAME, betas=(0.99, 0.99))),
    Mutant("no warm-up", "The learning rate is the largest from the first step on.", at_peak(_NAME)),
    Mutant(
        "vectors stand still", "Biases and gains are never updated.", only(_NAME, lambda n, name: "bias" not in name)
    ),
    Mutant(
        "norm in 16 bits",
        "The norm that gradients are clipped by is computed in bfloat16.",
        NORM_IN_16_BITS,
        {"training": {"gradient_clip": 0.1}},
    ),
)
