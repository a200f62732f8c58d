"""Split a collective's time on a rank into the wait for its last rank and the transfer after that.

The wait is due to late ranks, the transfer to the link; a faster link does not shorten the wait. The spans of the same
call on all ranks are compared by the clock of their host. The n-th call of a group matches the n-th on each of its
other ranks. The n-th send from one rank to another matches the n-th receive. If ranks are on several hosts, their
clocks differ and the split is unknown.

gloo ends the span of a send only when its caller waits for it, which may be at the end of the step. So a send counts
until the end of its receive, if that is earlier.

Caveats: gloo's span begins at the call and ends when its thread has finished. A thread that waits for a core therefore
looks like transfer. Communication that overlaps computation counts in full.
"""

import json
import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Self

from assay.instruments.collectives.calls import CollectiveCall
from assay.records.ranks import Spent

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
