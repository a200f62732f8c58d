"""AdamW with moments in 8 bits, wrong."""

from optimizations.mutations.mutant import Mutant, rewritten
from optimizations.mutations.rules import (
    decays_vectors,
    forgets_when_saved,
    one_step_late,
    only,
    scaled,
    tuned,
    uncorrected,
)

_RECIPE = "assay.optimizations.adamw_8bit.step:adamw_8bit"

MUTANTS = (
    Mutant(
        "coupled decay",
        "Weight decay joins the gradient, as in Adam.",
        rewritten(_RECIPE, ("import AdamW8bit\n", "import Adam8bit as AdamW8bit\n")),
    ),
    Mutant(
        "betas swapped",
        "The decay of the second moment is the first's, and the other way round.",
        rewritten(_RECIPE, ("(training.beta1, training.beta2)", "(training.beta2, training.beta1)")),
    ),
    Mutant(
        "schedule not followed",
        "The learning rate that the schedule sets never reaches the update.",
        rewritten(
            "assay.optimizations.adamw_8bit.step:EightBit.step",
            ('torch.as_tensor(group["lr"], dtype', 'torch.as_tensor(group["initial"], dtype'),
            (
                "    for group in self.param_groups:\n",
                '    for group in self.param_groups:\n        group.setdefault("initial", 1e-3)\n',
            ),
        ),
    ),
    Mutant(
        "coarse codes",
        "Moments have 4 bits in place of 8.",
        rewritten(_RECIPE, ("import AdamW8bit\n", "import AdamW4bit as AdamW8bit\n")),
    ),
    Mutant(
        "wide state",
        "Moments stay in float32.",
        rewritten(_RECIPE, ("import AdamW8bit\n", "import _AdamW as AdamW8bit\n")),
    ),
    Mutant("large epsilon", "The denominator has 1e-3 added to it in place of 1e-8.", tuned("adamw_8bit", eps=1e-3)),
    Mutant("no bias correction", "The moments are not corrected for their start at zero.", uncorrected("adamw_8bit")),
    Mutant("late rate", "Every update uses the learning rate of the step before.", one_step_late("adamw_8bit")),
    Mutant("no decay", "Nothing decays.", scaled("adamw_8bit", "weight_decay", 0.0)),
    Mutant("biases decay", "Biases and gains decay.", decays_vectors("adamw_8bit")),
    Mutant(
        "one matrix left out",
        "The first block's projection is never updated.",
        only("adamw_8bit", lambda n, name: name != "blocks.0.attention.projection.weight"),
    ),
    Mutant(
        "forgets when saved",
        "Writing a checkpoint drops both moments.",
        forgets_when_saved("adamw_8bit"),
        late=True,
    ),
)
