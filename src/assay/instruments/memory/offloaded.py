"""Where offloaded tensors go: each tensor that a context is given to save, beside what the context keeps of it.

Hooks of saved tensors do not nest: only the innermost are called. So those of offloading hide its tensors from the
instrument that counts saved bytes, and are wrapped here. What counts is where a tensor is, not what the technique says.
"""

from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from assay.instruments.memory.storages import identity, storages
from assay.instruments.operations import tensors_in
from assay.step.program import Context


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
