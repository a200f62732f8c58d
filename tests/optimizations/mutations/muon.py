"""Muon, wrong."""

from optimizations.mutations.mutant import Mutant, replaced, rewritten
from optimizations.mutations.rules import forgets

_RECIPE, _STEP = "assay.optimizers.recipes:muon", "assay.optimizers.bases:Joined.step"

MUTANTS = (
    Mutant(
        "other momentum",
        "The momentum is 0.9 in place of 0.95.",
        rewritten(_RECIPE, ("momentum=momentum", "momentum=0.9")),
    ),
    Mutant(
        "plain momentum",
        "The momentum is not Nesterov's.",
        rewritten(_RECIPE, ("momentum=momentum", "momentum=momentum, nesterov=False")),
    ),
    Mutant(
        "other size",
        "Steps have the original's size in place of AdamW's.",
        rewritten(_RECIPE, ('"match_rms_adamw"', '"original"')),
    ),
    Mutant(
        "other polynomial",
        "The Newton–Schulz iteration has the coefficients of the classical one.",
        rewritten(_RECIPE, ("momentum=momentum", "momentum=momentum, ns_coefficients=(1.5, -0.5, 0.0)")),
    ),
    Mutant(
        "four iterations",
        "The iteration ends one step too early.",
        rewritten(_RECIPE, ("momentum=momentum", "momentum=momentum, ns_steps=4")),
    ),
    Mutant(
        "no decay",
        "Hidden matrices do not decay.",
        rewritten(_RECIPE, ("weight_decay=training.weight_decay", "weight_decay=0.0")),
    ),
    Mutant(
        "embedding orthogonal",
        "The embedding takes orthogonal steps, too.",
        replaced(
            "assay.optimizers.recipes:is_hidden_matrix",
            lambda name, ndim: ndim == 2,
        ),
    ),
    Mutant(
        "last block left out",
        "The last block's matrices are AdamW's.",
        replaced(
            "assay.optimizers.recipes:is_hidden_matrix",
            lambda name, ndim: ndim == 2 and name.startswith(("blocks.0", "blocks.1", "blocks.2")),
        ),
    ),
    Mutant(
        "rest stands still",
        "Only hidden matrices are updated.",
        rewritten(_STEP, ("self._optimizers:", "self._optimizers[:1]:")),
    ),
    Mutant(
        "schedule for some",
        "The learning rate of the schedule reaches the hidden matrices only.",
        rewritten("assay.optimizers.bases:Joined._groups", ("self._optimizers for", "self._optimizers[:1] for")),
    ),
    Mutant("momentum not kept", "The momentum is zero before every update.", forgets("muon", "momentum_buffer")),
    Mutant(
        "rest stands still late",
        "Late in the run only hidden matrices are updated.",
        rewritten(_STEP, ("self._optimizers:", "self._optimizers[:1]:"), late=True),
        late=True,
    ),
)
