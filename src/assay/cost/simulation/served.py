"""A ledger that also counts what an allocator takes to serve each request, and the scratch of a library.

- On a CPU torch asks malloc for aligned memory. A request of 64 KiB or more is a mapping of its own if malloc returns
  freed memory at once. It has whole pages, with room for the alignment and a header. A smaller request has some 64
  bytes more (glibc's `_int_memalign` and `sysmalloc_mmap`).
- On a GPU a request is rounded to 512 bytes.

Segments that a caching allocator keeps are left out (`caching_allocator`).
"""

from collections.abc import Callable, Iterable, Mapping

from assay.cost.simulation.allocator import Category, Ledger, Storage
from assay.cost.simulation.caching_allocator import rounded
from assay.cost.simulation.timeline import replay
from assay.cost.step import Cost

_PAGE, _MAPPED = 4096, 64 * 2**10
_HEADER, _SMALL = 136, 64
"""Alignment and header of a mapping, and those of a request within malloc's heap."""


class Served(Ledger):
    """Highest bytes that an allocator needs while a step is played."""

    def __init__(self, held: Iterable[int], taken: Callable[[int], int], scratch: Mapping[tuple[str, str], int]):
        sizes = tuple(held)
        super().__init__(live=sum(sizes))
        self._taken, self._scratch = taken, scratch
        self.served_bytes = sum(map(taken, sizes))
        self.most_bytes = self.served_bytes

    def take(self, nbytes: int, category: Category = Category.TEMPORARY, site: str = "") -> Storage:
        """Serve a request."""
        self.served_bytes += self._taken(nbytes)
        return super().take(nbytes, category, site)

    def drop(self, storage: Storage) -> None:
        """Remove one holder."""
        super().drop(storage)
        if storage.holders == 0:
            self.served_bytes -= self._taken(storage.nbytes)

    def mark(self, phase: str, operation: str, site: str) -> None:
        """Count this instant, with the scratch of its operation."""
        super().mark(phase, operation, site)
        self.most_bytes = max(self.most_bytes, self.served_bytes + self._scratch.get((operation, site), 0))


def most_bytes(cost: Cost, scratch: Mapping[tuple[str, str], int], *, on_gpu: bool) -> int:
    """Return the highest bytes that the allocator of one device needs in a step.

    `scratch` has the bytes that a library may take, by operation and site.
    """
    held = [one.nbytes for one in cost.held] + [cost.held_bytes - sum(one.nbytes for one in cost.held)]
    ledger = Served(held, rounded if on_gpu else mapped, scratch)
    replay(cost, ledger)
    return ledger.most_bytes


def mapped(nbytes: int) -> int:
    """Bytes that malloc takes for a request of torch's CPU allocator."""
    if nbytes < _MAPPED:
        return nbytes + _SMALL if nbytes else 0
    return -(-(nbytes + _HEADER) // _PAGE) * _PAGE
