"""Muon, wrong."""

from optimizations.mutations.mutant import Mutant, replaced, rewritten
from optimizations.mutations.rules import forgets

_RECIPE, _STEP = "assay.optimizers.recipes:muon", "assay.optimizers.bases:Joined.step"
_CLASS, _PARTS = "assay.optimizers.recipes:Muon", "assay.optimizers.recipes:_beside_adamw"
_UPDATE = f"{_CLASS}.update"

MUTANTS = (
    Mutant(
        "other momentum",
        "The momentum is 0.9 in place of 0.95.",
        rewritten(_RECIPE, ("momentum=momentum", "momentum=0.9")),
    ),
    Mutant(
        "plain momentum",
        "The momentum is not Nesterov's.",
        rewritten(_UPDATE, ('gradient.lerp(state["momentum_buffer"], momentum)', 'state["momentum_buffer"]')),
    ),
    Mutant(
        "other size",
        "Steps have the original's size in place of AdamW's.",
        rewritten(
            f"{_CLASS}.sized",
            ("0.2 * math.sqrt(max(orthogonal.shape))", "math.sqrt(max(1, orthogonal.shape[0] / orthogonal.shape[1]))"),
        ),
    ),
    Mutant(
        "other polynomial",
        "The Newton–Schulz iteration has the coefficients of the classical one.",
        rewritten(_UPDATE, ("(3.4445, -4.7750, 2.0315)", "(1.5, -0.5, 0.0)")),
    ),
    Mutant(
        "four iterations",
        "The iteration ends one step too early.",
        rewritten(_UPDATE, ("5, 1e-7", "4, 1e-7")),
    ),
    Mutant(
        "no decay",
        "Hidden matrices do not decay.",
        rewritten(_PARTS, ('"weight_decay": training.weight_decay', '"weight_decay": 0.0')),
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
        rewritten(_STEP, ("self.optimizers:", "self.optimizers[:1]:")),
    ),
    Mutant(
        "schedule for some",
        "The learning rate of the schedule reaches the hidden matrices only.",
        rewritten("assay.optimizers.bases:Joined._groups", ("self.optimizers for", "self.optimizers[:1] for")),
    ),
    Mutant("momentum not kept", "The momentum is zero before every update.", forgets("muon", "momentum_buffer")),
    Mutant(
        "rest stands still late",
        "Late in the run only hidden matrices are updated.",
        rewritten(_STEP, ("self.optimizers:", "self.optimizers[:1]:"), late=True),
        late=True,
    ),
)
