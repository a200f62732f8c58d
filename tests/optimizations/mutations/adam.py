"""Adam, wrong."""

from optimizations.mutations.mutant import Mutant, rewritten
from optimizations.mutations.rules import at_peak, decays_vectors, forgets_when_saved, scaled, tuned, uncorrected

_RECIPE = "assay.optimizers.recipes:adam"

MUTANTS = (
    Mutant(
        "decoupled",
        "The decay shrinks the weight by itself, as AdamW's does.",
        rewritten(_RECIPE, ("torch.optim.Adam(", "torch.optim.AdamW(")),
    ),
    Mutant(
        "betas swapped",
        "The decay of the second moment is the first's, and the other way round.",
        rewritten(_RECIPE, ("(training.beta1, training.beta2)", "(training.beta2, training.beta1)")),
    ),
    Mutant("half the decay", "Only half of the weight decay joins the gradient.", scaled("adam", "weight_decay", 0.5)),
    Mutant("biases decay", "Biases and gains decay.", decays_vectors("adam")),
    Mutant("no bias correction", "The moments are not corrected for their start at zero.", uncorrected("adam")),
    Mutant("no warm-up", "The learning rate is the largest from the first step on.", at_peak("adam")),
    Mutant("large epsilon", "The denominator has 1e-3 added to it in place of 1e-8.", tuned("adam", eps=1e-3)),
    Mutant(
        "forgets when saved",
        "Writing a checkpoint drops both moments.",
        forgets_when_saved("adam"),
        late=True,
    ),
)
