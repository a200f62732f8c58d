"""Time that a rank's collectives take in one step: listed calls, their spans, and the wait for the last rank in each.

The collectives of one step are listed in order, with their ranks, which a backend's spans lack. A backend begins one
span for each call, in call order. The next step makes the same calls, so the list of one step names the spans of the
next. The listed step runs under a dispatch mode and is slow, so it is not timed.

The profiler's spans of the backend give the time in which a collective is in communication on this rank. A span of
gloo's begins at its call and ends at its end, so it includes the wait for late ranks. NCCL's spans are those of its
kernels. Spans that overlap each other count once. Spans that overlap computation count in full. On a CPU the two share
the cores; on a GPU only the step's time shows how much is hidden. The profiled step is a few percent slower than a
timed one, so the share is of its own time.

Spans are given by the host's monotonic clock, which its processes share, so that spans of several ranks can be
compared. Marks at instants read on both clocks relate the profiler's clock to it; the least difference is the best.

A collective's time on a rank is split into the wait for its last rank and the transfer after that. The wait is due to
late ranks, the transfer to the link; a faster link does not shorten the wait. The spans of the same call on all ranks
are compared by the clock of their host. The n-th call of a group matches the n-th on each of its other ranks. The n-th
send from one rank to another matches the n-th receive. If ranks are on several hosts, their clocks differ and the split
is unknown.

The backend gloo ends the span of a send only when its caller waits for it, which may be at the end of the step. So a
send counts until the end of its receive, if that is earlier.

Caveats: gloo's span begins at the call and ends when its thread has finished. A thread that waits for a core therefore
looks like transfer. Communication that overlaps computation counts in full.
"""

import json
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import torch
from torch._ops import OpOverload
from torch.distributed.device_mesh import DeviceMesh
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._python_dispatch import TorchDispatchMode

from assay.instruments.collective_payload import Axes, collective_of, group_ranks
from assay.records.ranks import Spent

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


_BACKENDS = ("gloo:", "ncclDevKernel")
_MICRO = 1e-6
_MARK, _MARKS = "assay: the clock", 8


@dataclass(frozen=True)
class Travel:
    """Seconds of one step, and those with a collective in communication."""

    step_seconds: float
    under_way_seconds: float
    spans: tuple[tuple[float, float], ...] = ()
    """(begin, end) of each span by the host's clock, in the order of begins."""

    @property
    def share(self) -> float:
        """Share of the step with a collective in communication."""
        return self.under_way_seconds / self.step_seconds


def travel(device: torch.device, one_step: Callable[[], None]) -> Travel:
    """Profile one step; every rank must run it."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities) as profiled:
        marks = [_marked() for _ in range(_MARKS)]
        began = time.perf_counter()
        one_step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds = time.perf_counter() - began
    seen = [
        (event.name, event.time_range.start * _MICRO, event.time_range.end * _MICRO)
        for event in profiled.events() or ()
        if event.name.startswith((*_BACKENDS, _MARK))
    ]
    marked = sorted(start for name, start, _ in seen if name == _MARK)
    ahead = min((told - start for told, start in zip(marks, marked, strict=True)), default=0.0)
    spans = sorted((start + ahead, end + ahead) for name, start, end in seen if name != _MARK)
    return Travel(seconds, min(seconds, union_length(spans)), tuple(spans))


def _marked() -> float:
    with record_function(_MARK):
        return time.perf_counter()


def union_length(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of (begin, end) spans."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


_Key = tuple[str, tuple[int, ...], int]


@dataclass(frozen=True)
class TimedCalls:
    """Calls of one rank in one step, each with its span."""

    host: str
    calls: tuple[CollectiveCall, ...]
    spans: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, listed: tuple[CollectiveCall, ...], spans: tuple[tuple[float, float], ...]) -> Self:
        """Pair calls with spans. Empty if their numbers differ, because a backend put several calls in one span."""
        return cls(platform.node(), listed, spans) if len(listed) == len(spans) else cls(platform.node(), (), ())

    def to_json(self) -> str:
        """Serialize, to send to the other ranks."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Restore from the text of `to_json`."""
        told = json.loads(text)
        calls = tuple(CollectiveCall(**{**one, "ranks": tuple(one["ranks"])}) for one in told["calls"])
        return cls(told["host"], calls, tuple((begin, end) for begin, end in told["spans"]))

    def keyed(self, rank: int) -> Iterator[tuple[_Key, CollectiveCall, float, float]]:
        """Yield (key, call, begin, end) of each call; all ranks that take part in a call give it the same key."""
        counts: Counter[tuple[str, tuple[int, ...]]] = Counter()
        for call, (begin, end) in zip(self.calls, self.spans, strict=True):
            name, ranks = call.collective, call.ranks
            if call.peer is not None:
                name, ranks = "send", ((rank, call.peer) if call.collective == "send" else (call.peer, rank))
            counts[name, ranks] += 1
            yield (name, ranks, counts[name, ranks]), call, begin, end


def collective_times(everyone: Sequence[TimedCalls], rank: int) -> tuple[Spent, ...]:
    """Times of one rank's collectives, from the timings of every rank, sorted by collective and axis."""
    seen: dict[_Key, dict[int, tuple[float, float]]] = {}
    for other, timed in enumerate(everyone):
        if timed.host == everyone[rank].host:
            for key, _, begin, end in timed.keyed(other):
                seen.setdefault(key, {})[other] = begin, end
    found: dict[tuple[str, str], list[tuple[float, float | None]]] = {}
    for key, call, begin, end in everyone[rank].keyed(rank):
        there = seen[key]
        if call.collective == "send" and call.peer in there:
            end = max(begin, min(end, there[call.peer][1]))
        late = max(start for start, _ in there.values()) - begin if set(there) == set(key[1]) else None
        wait = None if late is None else min(max(late, 0.0), end - begin)
        found.setdefault((call.collective, call.axis), []).append((end - begin, wait))
    return tuple(_summed(*kind, calls) for kind, calls in sorted(found.items()))


def _summed(collective: str, axis: str, calls: Sequence[tuple[float, float | None]]) -> Spent:
    waits = [wait for _, wait in calls if wait is not None]
    known = len(waits) == len(calls)
    return Spent(
        collective=collective,
        axis=axis,
        count=len(calls),
        seconds=sum(taken for taken, _ in calls),
        wait_seconds=sum(waits) if known else None,
    )
