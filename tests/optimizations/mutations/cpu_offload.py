"""An update on the host, wrong."""

from optimizations.mutations.mutant import Mutant, rewritten
from optimizations.mutations.rules import forgets_when_saved

_BEFORE, _AFTER = "assay.step.stand_in_update:_to_host", "assay.step.stand_in_update:_to_device"
_BACK = "        weight.copy_(copy, non_blocking=True)"
_DOWN = "copy.grad.copy_(weight.grad, non_blocking=True)"

MUTANTS = (
    Mutant(
        "vectors stay",
        "Updated biases and gains do not come back.",
        rewritten(_AFTER, (_BACK, f"        if weight.ndim > 1:\n    {_BACK}")),
        gpu=True,
    ),
    Mutant(
        "last one forgotten",
        "The last weight does not come back.",
        rewritten(_AFTER, ("for weight, copy in pairs:", "for weight, copy in pairs[:-1]:")),
        gpu=True,
    ),
    Mutant(
        "first gradients",
        "The gradients of the first step are used ever after.",
        rewritten(_BEFORE, (_DOWN, "pass")),
        gpu=True,
    ),
    Mutant(
        "gradients in 16 bits",
        "Gradients go down in bfloat16.",
        rewritten(_BEFORE, (_DOWN, "copy.grad.copy_(weight.grad.bfloat16(), non_blocking=True)")),
        gpu=True,
    ),
    Mutant(
        "weights in 16 bits",
        "Weights come for backward in bfloat16.",
        rewritten(
            "assay.optimizations.cpu_offload.step:Fetching._unpack",
            ("return copy.as_strided", "copy = copy.bfloat16().float()\n    return copy.as_strided"),
        ),
        {"stack": "cpu_offload:parameters=true"},
        gpu=True,
    ),
    Mutant(
        "forgets when saved",
        "Writing a checkpoint drops both moments.",
        forgets_when_saved("cpu_offload"),
        gpu=True,
        late=True,
    ),
)
