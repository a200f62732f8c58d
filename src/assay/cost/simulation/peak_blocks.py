"""The blocks of memory that are alive at the predicted peak: their sizes, and the part that each belongs to.

The replay is repeated, and ends its count when the bytes alive are those of the known peak. A captured graph keeps a
pool instead of blocks, so it has none.
"""

from collections import Counter
from dataclasses import dataclass, field

from assay.cost.simulation.allocator import Category, Storage
from assay.cost.simulation.composition import TABLES, Sorted
from assay.cost.simulation.timeline import play
from assay.cost.step import Cost

Blocks = Counter[tuple[int, str]]
"""Number of blocks by their bytes and part."""


@dataclass
class _Alive(Sorted):
    """A ledger that keeps the storages alive, and counts them when they reach `peak_bytes`."""

    peak_bytes: int = 0
    alive: dict[Storage, None] = field(default_factory=dict)
    at_peak: Blocks | None = None

    def take(self, nbytes: int, category: Category = Category.TEMPORARY, site: str = "") -> Storage:
        """Allocate a storage, and keep it."""
        storage = super().take(nbytes, category, site)
        self.alive[storage] = None
        return storage

    def drop(self, storage: Storage) -> None:
        """Remove one holder; with the last the storage is no longer alive."""
        super().drop(storage)
        if storage.holders == 0:
            self.alive.pop(storage, None)

    def mark(self, phase: str, operation: str, site: str) -> None:
        """Count the storages of the first instant that has the bytes of the peak."""
        if self.at_peak is None and self.live == self.peak_bytes:
            self.at_peak = Counter((one.nbytes, one.counted) for one in self.alive)


def peak_blocks(cost: Cost, peak_bytes: int) -> Blocks:
    """Return the blocks alive at the peak of a step, which has so many bytes; none for a captured graph."""
    if cost.replayed:
        return Counter()
    ledger = _Alive(cost.held_bytes, peak_bytes=peak_bytes)
    play(cost, ledger)
    assert ledger.at_peak is not None, f"no instant has {peak_bytes} bytes"
    return ledger.at_peak + _held(cost)


def _held(cost: Cost) -> Blocks:
    """Blocks that exist before the step."""
    found = Counter((one.nbytes, TABLES) for one in (*cost.tables, *cost.buffers))
    if not cost.sharding.on_host:
        found.update((one.nbytes, "weights") for one in cost.pieces.values())
        found.update((one.nbytes, "optimizer state") for one in cost.optimizer_state)
    return found
