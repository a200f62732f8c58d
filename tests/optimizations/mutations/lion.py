"""Lion, wrong."""

from optimizations.mutations.mutant import Mutant, replaced, rewritten
from optimizations.mutations.rules import decays_vectors, only

_UPDATE = "assay.optimizers.recipes:Lion.update"

MUTANTS = (
    Mutant(
        "betas swapped",
        "The momentum that is stepped along and the one that is kept exchange their decay.",
        rewritten(_UPDATE, ("beta1, beta2 = ", "beta2, beta1 = ")),
    ),
    Mutant(
        "moment first",
        "The kept momentum is updated before the step reads it.",
        rewritten(
            _UPDATE,
            ("    moment.lerp_(gradient, 1 - beta2)", ""),
            ("    moment = state", "    state['exp_avg'].lerp_(gradient, 1 - beta2)\n    moment = state"),
        ),
    ),
    Mutant(
        "decay in the gradient",
        "Weight decay joins the gradient, so that the sign swallows it.",
        rewritten(
            _UPDATE,
            ("    self.decay(parameter, direction, group)\n", ""),
            ("    direction = ", "    gradient = gradient + group['weight_decay'] * parameter\n    direction = "),
        ),
    ),
    Mutant(
        "AdamW's rate",
        "The learning rate is AdamW's, and not a Lion's smaller one.",
        replaced("assay.optimizers.recipes:scale_schedule", lambda program, factor: program),
    ),
    Mutant(
        "decay of the run",
        "Weight decay is not enlarged as the learning rate is made smaller.",
        rewritten("assay.optimizers.recipes:at_rate", ("training.weight_decay / factor", "training.weight_decay")),
    ),
    Mutant("biases decay", "Biases and gains decay.", decays_vectors("lion")),
    Mutant("every second weight", "Every second weight is never updated.", only("lion", lambda n, name: n % 2 == 0)),
    Mutant(
        "soft sign",
        "Late in the run a step is a smooth function in the place of the sign.",
        rewritten(_UPDATE, (".sign_()", ".mul(1e4).tanh()"), late=True),
        late=True,
    ),
)
