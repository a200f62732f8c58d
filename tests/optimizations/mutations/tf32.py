"""Products in TF32, wrong."""

from contextlib import nullcontext

from optimizations.mutations.mutant import Mutant, replaced, rewritten

_APPLY, _ALLOWED = "assay.optimizations.tf32:Tf32.apply", "assay.optimizations.tf32:_allowed"
_AROUND = "step_contexts=(*program.step_contexts, _allowed)"

MUTANTS = (
    Mutant(
        "not allowed", "The setting is the one that forbids it.", rewritten(_ALLOWED, ('"high"', '"highest"')), gpu=True
    ),
    Mutant(
        "forward only",
        "Backward's products are in float32.",
        rewritten(_APPLY, (_AROUND, "precision=replace(program.precision, forward_contexts=(_allowed,))")),
        gpu=True,
    ),
    Mutant(
        "bfloat16",
        "Products are in bfloat16.",
        rewritten(
            _APPLY,
            (_AROUND, "precision=Precision((lambda: torch.autocast('cuda', dtype=torch.bfloat16),))"),
            ("    return", "    import torch\n    from assay.step.program import Precision\n    return"),
        ),
        gpu=True,
    ),
    Mutant(
        "never put back",
        "The setting stays when the step is over, also for evaluations.",
        rewritten(_ALLOWED, ("torch.set_float32_matmul_precision(before)", "pass")),
        gpu=True,
        late=True,
    ),
    Mutant(
        "not allowed late",
        "Late in the run products are in float32.",
        replaced(_ALLOWED, nullcontext, late=True),
        gpu=True,
        late=True,
    ),
)
