"""Mixed precision in float16, wrong."""

from optimizations.mutations.mutant import Mutant, rewritten
from optimizations.mutations.precision import (
    NOT_UNSCALED,
    UNSCALED_LATE,
    loss_in_16_bits,
    rounded,
    scale_of,
    updates_left_out,
    wide_block,
    wide_head,
)
from optimizations.mutations.rules import around

_NAME, _CLIPPED = "fp16_mixed", {"training": {"gradient_clip": 0.1}}

MUTANTS = (
    Mutant("scale of 1", "The loss scale is 1, so small gradients are lost.", scale_of(_NAME, 1.0)),
    Mutant("not unscaled", "Gradients keep the loss scale, which Adam hides.", NOT_UNSCALED),
    Mutant(
        "unscaled late", "Gradients are clipped before they are divided by the loss scale.", UNSCALED_LATE, _CLIPPED
    ),
    Mutant(
        "half unscaled",
        "Gradients are divided by half of the loss scale.",
        rewritten("assay.parallel.loss_scale:DynamicLossScale.unscale", ("1 / self.value", "2 / self.value")),
    ),
    Mutant("updates left out", "Every second update is left out without a word.", updates_left_out(_NAME)),
    Mutant("head in float32", "The head is left out of autocast.", wide_head(_NAME)),
    Mutant("first block in float32", "The first block is left out of autocast.", wide_block(_NAME)),
    Mutant("loss in 16 bits", "The loss is computed in float16.", loss_in_16_bits(_NAME)),
    Mutant("weights rounded", "Weights are rounded to 16 bits after every update.", around(_NAME, after=rounded)),
    Mutant(
        "bfloat16",
        "Products run in bfloat16.",
        rewritten("assay.optimizations.fp16_mixed:Fp16Mixed.apply", ("torch.float16", "torch.bfloat16")),
    ),
    Mutant(
        "scale lost late",
        "Late in the run the loss is not scaled, but gradients are divided.",
        rewritten("assay.parallel.loss_scale:DynamicLossScale.scale", ("loss * self.value", "loss"), late=True),
        late=True,
    ),
)
