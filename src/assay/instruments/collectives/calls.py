"""List the collectives that a rank calls in one step, in order, with their ranks, which a backend's spans lack.

A backend begins one span for each call, in call order. The next step makes the same calls, so the list of one step
names the spans of the next. The listed step runs under a dispatch mode and is slow, so it is not timed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._python_dispatch import TorchDispatchMode

from assay.instruments.collectives.payload import Axes, collective_of, group_ranks

_LIBRARIES = ("c10d", "_c10d_functional", "_c10d_functional_autograd")
_BETWEEN_TWO = {"send": "send", "recv_": "recv"}


@dataclass(frozen=True)
class CollectiveCall:
    """One collective, or one end of a send."""

    collective: str
    axis: str
    ranks: tuple[int, ...]
    """Ranks of the group."""
    peer: int | None = None
    """Rank at the other end of a send or receive; None for a collective."""


def calls(mesh: DeviceMesh | None, one_step: Callable[[], None]) -> tuple[CollectiveCall, ...]:
    """Run one step and list this rank's calls; every rank must run it."""
    listing = _Listing(Axes(mesh))
    with listing:
        one_step()
    return tuple(listing.calls)


class _Listing(TorchDispatchMode):
    def __init__(self, axes: Axes) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[CollectiveCall] = []
        self._axes = axes

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # as in `instruments.dispatch_counts`: its inner tensors are dispatched here
        kwargs = kwargs or {}
        library, _, name = func._schema.name.partition("::")
        if library in _LIBRARIES:
            self._list(func, name, args, kwargs)
        return func(*args, **kwargs)

    def _list(self, func: OpOverload, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        collective = _BETWEEN_TWO.get(name) or collective_of(func)
        if collective is None:
            return
        ranks = group_ranks(args, kwargs)
        # Signature: c10d::send(tensors, group, rank in the group, tag); that of recv_ is the same.
        peer = ranks[args[2]] if name in _BETWEEN_TWO else None
        self.calls.append(CollectiveCall(collective, self._axes.of(args, kwargs), ranks, peer))
