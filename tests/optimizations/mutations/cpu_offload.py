"""An update on the host, wrong."""

from optimizations.mutations.mutant import Mutant, rewritten
from optimizations.mutations.rules import forgets_when_saved

_STEP, _BACK = "assay.step.optimizer_offload:_Moving.step", "        weight.copy_(copy, non_blocking=True)"
_DOWN = "copy.grad.copy_(weight.grad, non_blocking=True)"

MUTANTS = (
    Mutant(
        "vectors stay",
        "Updated biases and gains do not come back.",
        rewritten(_STEP, (_BACK, f"        if weight.ndim > 1:\n    {_BACK}")),
        gpu=True,
    ),
    Mutant(
        "last one forgotten",
        "The last weight does not come back.",
        rewritten(
            _STEP,
            (
                "    self._inner.step()\n    for weight, copy in self._pairs:",
                "    self._inner.step()\n    for weight, copy in self._pairs[:-1]:",
            ),
        ),
        gpu=True,
    ),
    Mutant(
        "first gradients",
        "The gradients of the first step are used ever after.",
        rewritten(_STEP, (_DOWN, "pass")),
        gpu=True,
    ),
    Mutant(
        "gradients in 16 bits",
        "Gradients go down in bfloat16.",
        rewritten(_STEP, (_DOWN, "copy.grad.copy_(weight.grad.bfloat16(), non_blocking=True)")),
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
