"""SGD with momentum, wrong."""

from optimizations.mutations.mutant import Mutant, replaced, rewritten
from optimizations.mutations.rules import decays_vectors, forgets, one_step_late, only, scaled, tuned

_NESTEROV = {"stack": "sgd:nesterov=true"}

MUTANTS = (
    Mutant(
        "momentum not kept",
        "The momentum buffer is empty at the start of every update.",
        forgets("sgd", "momentum_buffer"),
    ),
    Mutant("dampened", "The gradient joins the momentum by a tenth only.", tuned("sgd", dampening=0.9)),
    Mutant(
        "Nesterov left out",
        "Asked for Nesterov's momentum, it steps along the plain one.",
        tuned("sgd", nesterov=False),
        _NESTEROV,
    ),
    Mutant("Nesterov unasked", "It looks ahead although nobody asked.", tuned("sgd", nesterov=True)),
    Mutant("other momentum", "The momentum is 0.99 in place of 0.9.", tuned("sgd", momentum=0.99)),
    Mutant(
        "AdamW's rate",
        "The learning rate is AdamW's, a hundredth of its own.",
        replaced("assay.optimizers.recipes:scale_schedule", lambda program, factor: program),
    ),
    Mutant(
        "the run's decay",
        "The weight decay is the run's, and not its own.",
        rewritten("assay.optimizations.sgd:Sgd._training", (', "weight_decay": self.weight_decay', "")),
    ),
    Mutant("no decay", "Nothing decays.", scaled("sgd", "weight_decay", 0.0)),
    Mutant("biases decay", "Biases and gains decay.", decays_vectors("sgd")),
    Mutant("late rate", "Every update uses the learning rate of the step before.", one_step_late("sgd")),
    Mutant("one weight left out", "The last weight is never updated.", only("sgd", lambda n, name: n != 51)),
)
