"""Bytes of tensors saved for backward, counted by storage.

Autograd passes each tensor that it saves to a hook. The hook here wraps the tensor in a holder that lives exactly as
long as autograd's own reference would. A tensor counts until its holder is deleted, so the bytes are those saved *at
the same time*, for any order of micro-batches. A freed storage cannot be mistaken for a later one at its address. The
result is the peak of this sum, by category, when it was first reached.

Parameters and their views are excluded. They live anyway, and an engine that gathers or copies them while their module
runs frees them although autograd refers to them. Also excluded are Python numbers that autograd wraps (8 bytes each,
which reach no hook) and tensors saved inside backward, by a checkpoint's recomputation. Tensors that a kernel keeps
without calling the hooks (`linear_cross_entropy`) are not seen.

Hooks of saved tensors do not nest: only the innermost are called. So those of offloading hide its tensors from the
instrument that counts saved bytes, and are wrapped here. What counts is where a tensor is, not what the technique says.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from assay.instruments.memory.storages import dtype_name, identity, storages
from assay.instruments.operations import tensors_in
from assay.model.backward import in_backward
from assay.step.program import Context


class SavedTensors:
    """Context that counts saved tensors.

    `left_out` holds identities of storages that do not count; `role` maps the identity of a storage to its origin.
    """

    def __init__(self, left_out: set[int], role: Callable[[int], str]) -> None:
        self.left_out = left_out
        self.role = role
        self._highest: dict[str, int] = {}
        self._peak = 0
        self._rising = False
        """True while the tensors saved now are the highest so far, and not yet summed by category."""
        self._holders: Counter[int] = Counter()
        self._kept: dict[int, tuple[str, int]] = {}
        self._total = 0
        self._noted: list[int] = []
        self._hooks = saved_tensors_hooks(self._pack, _unpack)

    def __enter__(self) -> "SavedTensors":
        self._hooks.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hooks.__exit__(kind, error, trace)

    @property
    def highest(self) -> dict[str, int]:
        """Bytes by category at the peak."""
        self._settle()
        return self._highest

    def note(self, results: Any) -> None:
        """Count results that are kept for backward outside of autograd, until `forward_ended`."""
        for tensor in tensors_in(results):
            self._noted += self._counted(tensor)

    def forward_ended(self) -> None:
        """Stop counting the noted results: the peak includes them, and the following backward frees them."""
        self._release(self._noted)
        self._noted = []

    def _pack(self, tensor: torch.Tensor) -> Any:
        if in_backward() or _is_parameter(tensor):
            return tensor
        # `data` has no history: a result would refer to the node that holds it, and leak if backward never runs.
        return _Holder(tensor.data, self._counted(tensor), self._release)

    def _counted(self, tensor: torch.Tensor) -> list[int]:
        names = [self._keep(storage, tensor.dtype) for storage in storages(tensor)]
        if self._total > self._peak:
            self._peak, self._rising = self._total, True
        return [name for name in names if name is not None]

    def _keep(self, storage: torch.UntypedStorage, dtype: torch.dtype) -> int | None:
        name = identity(storage)
        if name in self.left_out:
            return None
        self._holders[name] += 1
        if self._holders[name] == 1:
            nbytes = storage.nbytes()
            if not nbytes:  # it adds nothing to a peak that was reached before
                self._settle()
            self._kept[name] = (f"{self.role(name)} {dtype_name(dtype)}", nbytes)
            self._total += nbytes
        return name

    def _release(self, names: list[int]) -> None:
        self._settle()
        for name in names:
            self._holders[name] -= 1
            if self._holders[name] == 0:
                del self._holders[name]
                self._total -= self._kept.pop(name)[1]

    def _settle(self) -> None:
        """Sum the highest so far by category, before the tensors saved now are no longer those of the peak."""
        if not self._rising:
            return
        sums: Counter[str] = Counter()
        for category, size in self._kept.values():
            sums[category] += size
        self._highest, self._rising = dict(sums), False


class _Holder:
    """Represents a saved tensor in autograd's graph, and reports when the graph releases it."""

    __slots__ = ("names", "release", "tensor")

    def __init__(self, tensor: torch.Tensor, names: list[int], release: Callable[[list[int]], None]) -> None:
        self.tensor, self.names, self.release = tensor, names, release

    def __del__(self) -> None:
        self.release(self.names)


def _is_parameter(tensor: torch.Tensor) -> bool:
    return isinstance(tensor if tensor._base is None else tensor._base, torch.nn.Parameter)


def _unpack(held: Any) -> torch.Tensor:
    tensor: torch.Tensor = held.tensor if isinstance(held, _Holder) else held
    return tensor


class MovedTensors:
    """Counts tensors that are saved within the contexts `around` returns; `weights` has identities of storages."""

    def __init__(self, weights: set[int]) -> None:
        self.moved_bytes = 0
        """Bytes of copies that are kept of saved tensors."""
        self.unmoved_bytes = 0
        """Bytes of saved tensors, without weights, that are kept themselves."""
        self.weight_bytes = 0
        """Bytes of weights of which copies are kept."""
        self._weights = weights

    def around(self, context: Context) -> AbstractContextManager[object]:
        """Return the hooks of `context`, which are called as before; a context without hooks as it is."""
        hooks = context()
        if not isinstance(hooks, saved_tensors_hooks):
            return hooks

        def pack(tensor: Tensor) -> Any:
            packed = hooks.pack_hook(tensor)
            self._note(tensor, [packed] if isinstance(packed, Tensor) else tensors_in(list(vars(packed).values())))
            return packed

        return saved_tensors_hooks(pack, hooks.unpack_hook)

    def _note(self, tensor: Tensor, kept: list[Tensor]) -> None:
        own = {identity(one) for one in storages(tensor)}
        copies = [one for one in kept if not own & {identity(storage) for storage in storages(one)}]
        if own & self._weights:
            self.weight_bytes += tensor.nbytes if copies else 0
        elif len(copies) < len(kept):
            self.unmoved_bytes += tensor.nbytes
        else:
            self.moved_bytes += sum(one.nbytes for one in copies)
