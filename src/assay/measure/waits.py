"""A collective's time on a rank in two: until the last of its ranks has called, and from then on.

The first part is somebody's lateness, the second is what the link takes; a faster link does nothing for the first. All
ranks' spans of the same call are held against each other on the one clock of their host: the n-th call of a group
belongs to the n-th of every other of its ranks, and the n-th send from one rank to another to the n-th receive. Where
ranks lie on several hosts their clocks differ, and the parts are not known.

gloo ends the span of a send only when its caller comes to wait for it, which may be the end of the step. So a send is
counted until its receive is over, where that is earlier.

Caveats: gloo's span begins at the call and ends when its thread is done, so that a thread that waits for a core looks
like transfer; what is under way while the rank computes counts all the same.
"""

import json
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Self

from assay.measure.calls import Call

_Key = tuple[str, tuple[int, ...], int]


@dataclass(frozen=True)
class Timed:
    """One rank's calls of a step, with a span each."""

    host: str
    calls: tuple[Call, ...]
    spans: tuple[tuple[float, float], ...]

    @classmethod
    def of(cls, listed: tuple[Call, ...], spans: tuple[tuple[float, float], ...]) -> Self:
        """A backend that carries several calls in one span leaves them nameless: then there is nothing."""
        return cls(platform.node(), listed, spans) if len(listed) == len(spans) else cls(platform.node(), (), ())

    def to_json(self) -> str:
        """For the other ranks."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` gave."""
        told = json.loads(text)
        calls = tuple(Call(**{**one, "ranks": tuple(one["ranks"])}) for one in told["calls"])
        return cls(told["host"], calls, tuple((begin, end) for begin, end in told["spans"]))

    def keyed(self, rank: int) -> Iterator[tuple[_Key, Call, float, float]]:
        """Each call under a key that it has on all ranks that take part in it."""
        counts: Counter[tuple[str, tuple[int, ...]]] = Counter()
        for call, (begin, end) in zip(self.calls, self.spans, strict=True):
            name, ranks = call.collective, call.ranks
            if call.peer is not None:
                name, ranks = "send", ((rank, call.peer) if call.collective == "send" else (call.peer, rank))
            counts[name, ranks] += 1
            yield (name, ranks, counts[name, ranks]), call, begin, end


@dataclass(frozen=True)
class Spent:
    """All calls of one collective along one axis."""

    collective: str
    axis: str
    count: int
    seconds: float
    wait_seconds: float | None
    """None where it is not known of one of them."""


def spent(everyone: Sequence[Timed], rank: int) -> tuple[Spent, ...]:
    """Of one rank, given what every rank timed; in the order of collective and axis."""
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
    return Spent(collective, axis, len(calls), sum(taken for taken, _ in calls), sum(waits) if known else None)
