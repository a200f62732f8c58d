"""A ledger that also counts what an allocator takes to serve each request, and the scratch of a library.

- On a CPU torch asks malloc for aligned memory. A request of 64 KiB or more is a mapping of its own if malloc returns
  freed memory at once. It has whole pages, with room for the alignment and a header. A smaller request has some 64
  bytes more (glibc's `_int_memalign` and `sysmalloc_mmap`).
- On a GPU a request is rounded to 512 bytes.

Segments that a caching allocator keeps are left out (`caching_allocator`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from assay.cost.operation import Tensor
from assay.cost.simulation.allocator import Category, Ledger, Storage
from assay.cost.simulation.caching_allocator import block_bytes
from assay.cost.simulation.timeline import play
from assay.cost.step_cost import Cost

_PAGE, _MAPPED = 4096, 64 * 2**10
_HEADER, _SMALL = 136, 64
"""Alignment and header of a mapping, and those of a request within malloc's heap."""


class Served(Ledger):
    """Highest bytes that an allocator needs while a step is played; sums and instants are not counted."""

    def __init__(self, held: Iterable[int], taken: Callable[[int], int], scratch: Mapping[tuple[str, str], int]):
        super().__init__(live=0)
        self._taken, self._scratch = taken, scratch
        self.served_bytes = sum(map(taken, held))
        self.most_bytes = self.served_bytes

    def take(self, nbytes: int, category: Category = Category.TEMPORARY, site: str = "") -> Storage:
        """Serve a request."""
        self.served_bytes += self._taken(nbytes)
        return Storage(nbytes, category, site)

    def drop(self, storage: Storage) -> None:
        """Remove one holder."""
        storage.holders -= 1
        if storage.holders == 0:
            self.served_bytes -= self._taken(storage.nbytes)

    def capture(self) -> None:
        """Leave the need as it is, because the pool of a captured graph is not served like this."""

    def mark(self, phase: str, operation: str, site: str) -> None:
        """Count this instant, with the scratch of its operation."""
        need = self.served_bytes
        if self._scratch:
            need += self._scratch.get((operation, site), 0)
        if need > self.most_bytes:
            self.most_bytes = need


def most_bytes(cost: Cost, scratch: Mapping[tuple[str, str], int], *, on_gpu: bool) -> int:
    """Return the highest bytes that the allocator of one device needs in a step.

    `scratch` has the bytes that a library may take, by operation and site.
    """
    ledger = Served([*_sizes(cost.held), _padding(cost)], block_bytes if on_gpu else mapped_bytes, scratch)
    play(cost, ledger)
    return ledger.most_bytes


@dataclass(frozen=True)
class Passes:
    """Needs of a step's forwards and backwards, without the optimizer's state and update."""

    most_bytes: int
    """Highest bytes that the allocator needs."""
    left_bytes: int
    """Bytes that are left when the update begins: weights, tables and gradients."""

    def updated(self, update: "Update") -> int:
        """Return the highest bytes of the whole step."""
        return update.state_bytes + max(self.most_bytes, self.left_bytes + update.most_bytes)


@dataclass(frozen=True)
class Update:
    """Needs of an optimizer: its state, and the largest temporaries of its update."""

    state_bytes: int
    most_bytes: int


def passes(cost: Cost, scratch: Mapping[tuple[str, str], int], *, on_gpu: bool) -> Passes:
    """Return the needs of forwards and backwards of a ledger that updates nothing within backward."""
    ledger = Served([*_sizes(cost.held_at_first), _padding(cost)], block_bytes if on_gpu else mapped_bytes, scratch)
    play(cost, ledger, update=False)
    return Passes(ledger.most_bytes, ledger.served_bytes)


def _sizes(tensors: Iterable[Tensor]) -> Iterator[int]:
    return (one.nbytes for one in tensors)


def _padding(cost: Cost) -> int:
    """Bytes of the padding of shards on the device."""
    return 0 if cost.sharding.on_host else cost.sharding.padding_bytes


def saved_at_least(cost: Cost) -> int:
    """Return bytes that are saved for backward when forward ends: those of operations that are not recomputed.

    It is 0 for a pipeline, which has backwards between forwards.
    """
    if cost.order:
        return 0
    again, values = cost.backward.recomputed, cost.values
    saved = {name for one in cost.tape if not one.within(*again) for name in one.saves}
    bases = {_base(name, values) for name in saved}
    given = (*cost.tables, *cost.batch.tensors, *cost.batch.picked)
    made = bases - cost.parameters.keys() - {one.name for one in given}
    return sum(values[name].nbytes for name in made)


def _base(name: str, values: Mapping[str, Tensor]) -> str:
    """Return the tensor whose storage another one has."""
    while (of := values[name].view_of) is not None:
        name = of
    return name


def update(cost: Cost, *, on_gpu: bool) -> Update:
    """Return the needs of a ledger's optimizer, without the scratch that a library may take in its products."""
    taken = block_bytes if on_gpu else mapped_bytes
    state = sum(taken(one.nbytes) for one in cost.optimizer_state)
    return Update(state, max((taken(one.nbytes) for one in cost.update), default=0))


def mapped_bytes(nbytes: int) -> int:
    """Bytes that malloc takes for a request of torch's CPU allocator."""
    if nbytes < _MAPPED:
        return nbytes + _SMALL if nbytes else 0
    return -(-(nbytes + _HEADER) // _PAGE) * _PAGE
