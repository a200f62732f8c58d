"""CUDA graphs on a CPU, for tests: operators are noted while they are recorded, and replayed into the same tensors.

As on a GPU, nothing that changes a tensor takes effect while it is recorded; what only makes new tensors does run, so
that there is something to note them by. Nothing is shared between recordings: every tensor keeps a place of its own.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from assay.step import graphs

Call = tuple[OpOverload, tuple[Any, ...], dict[str, Any], Any]


class Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What was done inside, to be done again."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[Call] = []

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = _changed(func, args, kwargs) if func._schema.is_mutable else func(*args, **kwargs)
        self.calls.append((func, args, kwargs, result))
        return result

    @torch.no_grad()
    def replay(self) -> None:
        """Everything again, in order, into the tensors that were made; no instrument sees it, as on a GPU."""
        with _disable_current_modes():
            for func, args, kwargs, result in self.calls:
                again = func(*args, **kwargs)
                for place, value in zip(tree_leaves(result), tree_leaves(again), strict=True):
                    if isinstance(place, Tensor) and place.untyped_storage()._cdata != value.untyped_storage()._cdata:
                        place.detach().copy_(value)


def _changed(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The arguments that an operator would have changed and returned."""
    given = dict(zip((one.name for one in func._schema.arguments), args, strict=False)) | kwargs
    written = [given[one.name] for one in func._schema.arguments if one.alias_info and one.alias_info.is_write]
    return written[0] if len(func._schema.returns) == 1 else None


def install(patch: pytest.MonkeyPatch) -> None:
    """Have graphs recorded on a CPU."""

    def capture_graph(work: Callable[[], Tensor], pool: Any) -> tuple[Recording, Tensor]:
        with Recording() as recording:
            result = work()
        return recording, result

    patch.setattr(graphs, "capture_graph", capture_graph)
    patch.setattr(graphs, "beside", lambda device, work: work())
    patch.setattr(graphs, "new_pool", lambda: (0, 0))
