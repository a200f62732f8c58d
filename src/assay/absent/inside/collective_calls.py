"""Collectives of one rank, in order: their kind, their payload, and the ranks of their group.

The payload is the larger side of a call: an all-gather's output, a reduce-scatter's input, the tensor of an all-reduce
or a send. The list is kept for one whole step, because a step repeats the one before it.
"""

import threading
from typing import Any

MOST_KEPT = 20_000
"""Most calls of one step that are kept."""
_PLAIN = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "allgather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "alltoall": "all_to_all",
    "recv_any_source": "recv",
}
"""Usual name by torch's operator, without its suffixes, where the two differ."""


def plain_name(operator: str) -> str:
    """Return the usual name of an operator of `c10d`: ``all_reduce`` for ``allreduce_``."""
    name = operator.strip("_").removesuffix("coalesced").strip("_").removesuffix("base").strip("_")
    return _PLAIN.get(name, name)


class CollectiveCalls:
    """Calls since the last step, and those of the last whole step."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # autograd's threads call collectives, too
        self._now: list[tuple[str, int, tuple[int, ...]]] = []
        self._step: list[tuple[str, int, tuple[int, ...]]] | None = None
        self._steps = 0
        self._alike = True
        self.calls = 0
        """Calls of the whole process."""

    def add(self, name: str, size: int, ranks: tuple[int, ...]) -> None:
        """Note one call with its payload in bytes."""
        with self._lock:
            self.calls += 1
            if len(self._now) < MOST_KEPT:
                self._now.append((name, size, ranks))

    def stepped(self) -> None:
        """A step has ended. The first two are not compared: DistributedDataParallel makes new buckets in the second."""
        with self._lock:
            self._steps += 1
            self._alike = self._alike and (self._steps <= 3 or self._now == self._step)
            self._step, self._now = self._now, []

    def content(self) -> dict[str, Any]:
        """Return the calls of the last whole step, or without one those of the process, as plain data."""
        with self._lock:
            kept = self._now if self._step is None else self._step
            listed = [{"name": name, "bytes": size, "ranks": list(ranks)} for name, size, ranks in kept]
            return {"calls": self.calls, "of_a_step": listed, "alike": self._alike}
