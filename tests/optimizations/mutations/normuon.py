"""NorMuon, wrong."""

from optimizations.mutations.mutant import LAST, Mutant, replaced, rewritten
from optimizations.mutations.rules import forgets, tuned

_SIZED = "assay.optimizers.recipes:NorMuon.sized"
_UPDATE = "assay.optimizers.recipes:Muon.update"
_FACTORS = "1 / (square.float().sqrt() + epsilon)"

MUTANTS = (
    Mutant(
        "rows as they are",
        "Mean squares of rows are kept, and the step is Muon's.",
        rewritten(_SIZED, (_FACTORS, "torch.ones_like(rows)")),
    ),
    Mutant(
        "no memory of rows",
        "Each row is divided by its own norm of this step.",
        rewritten(_SIZED, (_FACTORS, "1 / (rows / direction.shape[1] ** 0.5 + epsilon)")),
    ),
    Mutant(
        "no root",
        "Rows are divided by their mean square in place of its root.",
        rewritten(_SIZED, ("square.float().sqrt()", "square.float()")),
    ),
    Mutant(
        "columns",
        "The mean square is one of all rows.",
        rewritten(
            _SIZED,
            ("torch.linalg.vector_norm(direction, dim=1,", "torch.linalg.vector_norm(direction, dim=0,"),
            ("rows.square().div_(direction.shape[1])", "rows.square().div_(direction.shape[0]).mean()"),
            ("vector_norm(rows * factors)", "vector_norm(factors * direction.shape[1] ** 0.5)"),
        ),
    ),
    Mutant(
        "size of the paper's baseline",
        "The step keeps the norm of the orthogonal matrix times the root of its shape's ratio.",
        rewritten(
            _SIZED, ("0.2 * math.sqrt(direction.numel())", "math.sqrt(max(direction.shape) / direction.shape[1] * 24)")
        ),
    ),
    Mutant(
        "decay of the momentum",
        "The mean squares decay as fast as the momentum of another run.",
        tuned("normuon", beta2=0.5),
    ),
    Mutant("large epsilon", "The root has 0.1 added to it in place of 1e-10.", tuned("normuon", eps=0.1)),
    Mutant(
        "rows not kept",
        "The mean squares are zero before every update.",
        forgets("normuon", "second_momentum_buffer"),
    ),
    Mutant(
        "embedding too",
        "The embedding's rows are normalized, too.",
        replaced("assay.optimizers.recipes:is_hidden_matrix", lambda name, ndim: ndim == 2),
    ),
    Mutant(
        "plain momentum",
        "The momentum is not Nesterov's.",
        rewritten(
            "assay.optimizers.recipes:Muon.update",
            ('gradient.lerp(state["momentum_buffer"], momentum)', 'state["momentum_buffer"]'),
        ),
    ),
    Mutant(
        "rows as they are late",
        "Late in the run the step is Muon's.",
        rewritten(_SIZED, (_FACTORS, "torch.ones_like(rows)"), late=True),
        late=True,
    ),
    Mutant(
        "mean squares of the step before",
        "Rows are divided by their mean square from before this step joins it.",
        rewritten(
            _SIZED,
            ("    square.lerp_(", "    before = square.clone()\n    square.lerp_("),
            ("(square.float().sqrt() + epsilon)", "(before.float().sqrt() + epsilon)"),
        ),
    ),
    Mutant(
        "epsilon in the root",
        "Epsilon is added to the mean square, and not to its root.",
        rewritten(_SIZED, ("(square.float().sqrt() + epsilon)", "(square.float() + epsilon).sqrt()")),
        run={"stack": "normuon:epsilon=0.01"},
    ),
    Mutant(
        "no decay of matrices",
        "Hidden matrices do not decay.",
        rewritten(_UPDATE, ("    self.decay(parameter, direction, group)\n", "")),
    ),
    Mutant(
        "decay of the step's size",
        "Hidden matrices decay at the rate of their step, which has its size in it.",
        rewritten(
            _UPDATE,
            ("direction, group)\n    parameter", 'direction, {**group, "lr": group["lr"] * size})\n    parameter'),
        ),
    ),
    Mutant(
        "slightly larger in the last step",
        "From step 7 on steps are a fiftieth too large.",
        rewritten(_SIZED, ("0.2 * math", "0.204 * math"), late=True, since=LAST),
        late=True,
    ),
    Mutant(
        "momentum not damped",
        "The momentum adds whole gradients, so that Nesterov's share of the newest is smaller.",
        rewritten(
            _UPDATE,
            (
                'state["momentum_buffer"].lerp_(gradient, 1 - momentum)',
                'state["momentum_buffer"].mul_(momentum).add_(gradient)',
            ),
        ),
    ),
)
