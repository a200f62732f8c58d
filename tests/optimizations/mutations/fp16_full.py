"""Everything in float16, wrong."""

from optimizations.mutations.mutant import Mutant, rewritten
from optimizations.mutations.precision import NOT_UNSCALED, UNSCALED_LATE, scale_of, updates_left_out
from optimizations.mutations.rules import decays_vectors, only

_NAME, _UPDATE = "fp16_full", "assay.optimizations.fp16_full.step:AdamW16.update"

MUTANTS = (
    Mutant("scale of 1", "The loss scale is 1, so small gradients are lost.", scale_of(_NAME, 1.0)),
    Mutant("not unscaled", "Gradients keep the loss scale, which Adam hides.", NOT_UNSCALED),
    Mutant(
        "unscaled late",
        "Gradients are clipped before they are divided by the loss scale.",
        UNSCALED_LATE,
        {"training": {"gradient_clip": 0.1}},
    ),
    Mutant("updates left out", "Every second update is left out without a word.", updates_left_out(_NAME)),
    Mutant(
        "loss in 16 bits",
        "The loss is computed in float16, too.",
        rewritten("assay.model.narrow:narrow", ("lift_logits(part)", "pass")),
    ),
    Mutant(
        "bfloat16",
        "Everything is in bfloat16.",
        rewritten("assay.optimizations.fp16_full:Fp16Full.apply", ("torch.float16", "torch.bfloat16")),
    ),
    Mutant(
        "square in 16 bits",
        "The second moment is squared in float16, where small ones are zero.",
        rewritten(_UPDATE, ('["exp_avg_root"].float().square_()', '["exp_avg_root"].square().float()')),
    ),
    Mutant(
        "no bias correction",
        "The step is not corrected for moments that start at zero.",
        rewritten(_UPDATE, ("root.div_((1 - beta2**done) ** 0.5)", "root"), ("-rate / (1 - beta1**done)", "-rate")),
    ),
    Mutant("biases decay", "Biases and gains decay.", decays_vectors(_NAME)),
    Mutant("every second weight", "Every second weight is never updated.", only(_NAME, lambda n, name: n % 2 == 0)),
)
