"""Activations on the host, wrong."""

from contextlib import nullcontext

from optimizations.mutations.mutant import Mutant, replaced, rewritten

_PACK, _OWN = "assay.step.device_queue:Offload._pack", "if tensor.untyped_storage()._cdata in self._weights:"

MUTANTS = (
    Mutant(
        "rounded",
        "What goes to the host is rounded to bfloat16.",
        rewritten(_PACK, (".copy_(tensor, non_blocking=True)", ".copy_(tensor.to(torch.bfloat16), non_blocking=True)")),
        gpu=True,
    ),
    Mutant("weights along", "Weights go to the host, too.", rewritten(_PACK, (_OWN, "if False:")), gpu=True),
    Mutant(
        "small ones stay",
        "Tensors of fewer than 4,096 numbers stay on the device.",
        rewritten(_PACK, (_OWN, f"{_OWN[:-1]} or tensor.numel() < 4096:")),
        gpu=True,
    ),
    Mutant(
        "nothing moves",
        "Everything stays on the device.",
        rewritten(_PACK, (_OWN, "if True:")),
        gpu=True,
    ),
    Mutant(
        "comes back halved",
        "The upper half of each tensor comes back as zeros.",
        rewritten(
            "assay.step.device_queue:Offload._unpack",
            (
                "return packed.copy.to",
                "count = packed.copy.numel()\n    packed.copy.as_strided((count,), (1,))[count // 2 :] = 0\n"
                "    return packed.copy.to",
            ),
        ),
        gpu=True,
    ),
    Mutant(
        "stays late",
        "Late in the run everything stays on the device.",
        replaced("assay.step.device_queue:Offload.__call__", lambda self: nullcontext(), late=True),
        gpu=True,
        late=True,
    ),
)
