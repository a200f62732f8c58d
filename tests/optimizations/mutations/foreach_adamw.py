"""AdamW over lists, wrong."""

from assay.config import Run
from assay.step.program import OptimizerLike
from optimizations.mutations.mutant import Mutant, rewritten
from optimizations.mutations.rules import (
    around,
    decays_vectors,
    forgets,
    forgets_when_saved,
    one_step_late,
    only,
    tuned,
    uncorrected,
)

_RECIPE = "assay.optimizers.recipes:adamw"


def _leaking(optimizer: OptimizerLike, run: Run) -> None:
    for state in optimizer.state.values():
        state["exp_avg"].mul_(0.999)


MUTANTS = (
    Mutant(
        "betas swapped",
        "The decay of the second moment is the first's, and the other way round.",
        rewritten(_RECIPE, ("(training.beta1, training.beta2)", "(training.beta2, training.beta1)")),
    ),
    Mutant(
        "decay coupled",
        "Weight decay joins the gradient, as in Adam.",
        rewritten(_RECIPE, ("torch.optim.AdamW(", "torch.optim.Adam(")),
    ),
    Mutant(
        "no bias correction", "The moments are not corrected for their start at zero.", uncorrected("foreach_adamw")
    ),
    Mutant("momentum not kept", "The first moment is zero before every update.", forgets("foreach_adamw", "exp_avg")),
    Mutant("late rate", "Every update uses the learning rate of the step before.", one_step_late("foreach_adamw")),
    Mutant("leaking momentum", "The first moment loses a thousandth in every step.", around("foreach_adamw", _leaking)),
    Mutant("large epsilon", "The denominator has 1e-5 added to it in place of 1e-8.", tuned("foreach_adamw", eps=1e-5)),
    Mutant("biases decay", "Biases and gains decay.", decays_vectors("foreach_adamw")),
    Mutant("vectors only", "Matrices are never updated.", only("foreach_adamw", lambda n, name: "norm" in name)),
    Mutant(
        "forgets when saved",
        "Writing a checkpoint drops both moments.",
        forgets_when_saved("foreach_adamw"),
        late=True,
    ),
)
