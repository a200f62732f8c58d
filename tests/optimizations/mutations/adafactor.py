"""Adafactor, wrong."""

from optimizations.mutations.mutant import Mutant, replaced, rewritten
from optimizations.mutations.rules import decays_vectors, only, scaled, tuned, uncorrected

MUTANTS = (
    Mutant(
        "AdamW's rate",
        "The learning rate is AdamW's in place of the relative one.",
        replaced("assay.optimizers.recipes:scale_schedule", lambda program, factor: program),
    ),
    Mutant(
        "decay of the run",
        "The weight decay does not follow the larger learning rate, so weights shrink ten times as fast.",
        rewritten("assay.optimizers.recipes:at_rate", ("training.weight_decay / factor", "training.weight_decay")),
    ),
    Mutant("no clipping", "Large updates are not scaled down to an RMS of 1.", tuned("adafactor", d=1e9)),
    Mutant(
        "slower mean", "The second moment decays by t^-0.5 in place of t^-0.8.", tuned("adafactor", beta2_decay=-0.5)
    ),
    Mutant(
        "absolute step",
        "The step has a fixed size where a weight is small.",
        tuned("adafactor", eps=(None, 0.1)),
    ),
    Mutant("step count stuck", "Every update counts as a very late one.", uncorrected("adafactor")),
    Mutant("no decay", "Nothing decays.", scaled("adafactor", "weight_decay", 0.0)),
    Mutant("biases decay", "Biases and gains decay.", decays_vectors("adafactor")),
    Mutant(
        "one matrix left out",
        "The last block's projection is never updated.",
        only("adafactor", lambda n, name: name != "blocks.3.mlp.down.weight"),
    ),
)
