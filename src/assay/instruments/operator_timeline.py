"""The operators of one more step, with the memory alive after each; and CUDA's own history of its memory.

The times are those of a watched step. The ledger of storages is entered last, so that it sees an operator first, and
its work lies between two operators. Memory that a kernel takes and frees inside an operator is not seen.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from assay.files import storage_errors
from assay.instruments.dissection import Dissector
from assay.instruments.memory.allocator_history import MOST_EVENTS
from assay.instruments.memory.memory_pass import live_tensors
from assay.instruments.memory.storage_ledger import StorageLedger
from assay.records.anatomy import Operator
from assay.step.program import Step

_Train = Callable[[Step, int], object]


class _Sampled(StorageLedger):  # type: ignore[no-untyped-call]
    """Ledger that notes the bytes alive at the end of each operator.

    It has no hooks of saved tensors, because these add operators to the step.
    """

    def __init__(self, device_type: str) -> None:
        super().__init__(device_type)
        self.samples: list[int] = []

    def __enter__(self) -> "_Sampled":
        TorchDispatchMode.__enter__(self)  # type: ignore[no-untyped-call]
        return self

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.samples.append(self.alive_bytes)
        return result


def operators(step: Step, train: _Train, index: int) -> tuple[Operator, ...]:
    """Train one more step with `train(step, index)`, and return its operators in their order."""
    device = step.program.device
    ledger = _Sampled(device.type)
    with Dissector(step, keep=True) as dissector, ledger:
        ledger.begin(step.parts, {}, live_tensors(device))
        train(dissector.watch(), index)
    seen = zip(dissector.operators(), ledger.samples, strict=True)
    return tuple(one.model_copy(update={"alive_bytes": alive}) for one, alive in seen)


def memory_snapshot(step: Step, train: _Train, index: int, path: Path) -> None:
    """Train one more step, and write CUDA's history of allocations with stacks, for pytorch.org/memory_viz.

    The device must be a CUDA one: no other allocator keeps a history. Raises `StorageError` if the disk refuses.
    """
    torch.cuda.memory._record_memory_history(max_entries=MOST_EVENTS)
    try:
        train(step, index)
        torch.cuda.synchronize(step.program.device)
        with storage_errors(path):
            torch.cuda.memory._dump_snapshot(str(path))  # type: ignore[no-untyped-call]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
