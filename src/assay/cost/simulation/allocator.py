"""Live bytes while a step is played, and the highest instant of each of its parts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from assay.cost.operation import Operation
from assay.cost.tensor import Tensor


class Moment(NamedTuple):
    """A point of the step: the operation, its site, and the bytes alive."""

    phase: str
    """forward, recompute, backward or update."""
    operation: str
    site: str
    nbytes: int

    @property
    def label(self) -> str:
        """Phase and operation, which an instrument can name as well."""
        return f"{self.phase}: {self.operation}"

    def __str__(self) -> str:
        return self.label + (f" ({self.site})" if self.site else "")


Part = tuple[str, str]
"""A part of the step: its phase and module."""


class Category(Enum):
    """Category of a storage that is allocated during a step."""

    ACTIVATION = "results of operations"
    COPY = "copies of weights in another dtype"
    GENERATOR = "states of the random generator"
    ACTIVATION_GRADIENT = "gradients of activations"
    GRADIENT = "gradients of parameters"
    GATHERED = "whole weights, gathered from shards"
    MESSAGE = "messages of collectives"
    BATCH = "token ids and targets"
    NUMBER = "figures of the step, and Python numbers wrapped in tensors"
    TEMPORARY = "temporaries of one operation"

    __hash__ = object.__hash__
    """Identities are hashed, because the hash of a name, which is the default, is computed in Python each time."""


ACTIVATION, ACTIVATION_GRADIENT = Category.ACTIVATION, Category.ACTIVATION_GRADIENT
COPY, GRADIENT, NUMBER = Category.COPY, Category.GRADIENT, Category.NUMBER
"""Categories by names of their own, because a replay reads them thousands of times, and as attributes slowly."""


@dataclass(eq=False, slots=True)
class Storage:
    """Bytes with a reference count."""

    nbytes: int
    category: Category
    site: str = ""
    """Module whose operation allocated it."""
    holders: int = 1
    saved: bool = False
    """True once backward holds it."""
    viewed: bool = False
    """True if it is read under another shape than the one it was made with."""
    transposed: bool = False
    """True if its elements are in another order than those of the parameter whose gradient it is."""
    counted: str = ""
    """Name under which a ledger that sorts storages counts it; empty if that has not allocated it."""

    def may_become(self, nbytes: int) -> bool:
        """True if a compiled loop may overwrite it: it has `nbytes` bytes and a single holder."""
        return self.holders == 1 and self.nbytes == nbytes


class Requests:
    """Requests of a step and their frees, in order."""

    def __init__(self) -> None:
        self.events: list[int] = []
        """Bytes of each request; for a free −1 − n, where n is the number of the request, from 0 on."""
        self._numbers: dict[Storage, int] = {}
        self._made = 0

    def add(self, storage: Storage) -> None:
        """Record the request for a storage."""
        self._numbers[storage] = self._made
        self._made += 1
        self.events.append(storage.nbytes)

    def free(self, storage: Storage) -> None:
        """Record the free of a storage, unless the step began with it."""
        if storage in self._numbers:
            self.events.append(-1 - self._numbers.pop(storage))


@dataclass
class Ledger:
    """Bytes alive, allocations so far, and the highest instant of each part of the step."""

    live: int
    allocations: int = 0
    allocated_bytes: int = 0
    highest: dict[Part, tuple[str, str, str, int]] = field(default_factory=dict)
    """Fields of a `Moment` by part of the step; most are replaced by higher ones, so they become moments at the end."""
    workspaces: int = 0
    """Bytes that libraries keep, which `live` leaves out."""
    requested: tuple[str, str, str, int] = ("", "", "", 0)
    """Fields of the `Moment` with the most bytes that are requested: with workspaces, without a graph's own memory."""
    late: bool = False
    """True if what another stream copies is given back when the step ends, and not at once."""
    captured: int = 0
    """Bytes that a captured graph keeps and no tensor has."""

    def take(self, nbytes: int, category: Category = Category.TEMPORARY, site: str = "") -> Storage:
        """Allocate a storage with one holder."""
        self.live += nbytes
        self.allocations += 1
        self.allocated_bytes += nbytes
        return Storage(nbytes, category, site)

    def take_if(self, nbytes: int, category: Category, site: str = "") -> list[Storage]:
        """Allocate a storage with one holder, if it has any bytes."""
        return [self.take(nbytes, category, site)] if nbytes else []

    def drop(self, storage: Storage) -> None:
        """Remove one holder; the storage is freed with its last."""
        storage.holders -= 1
        if storage.holders == 0:
            self.live -= storage.nbytes

    def save(self, storage: Storage) -> None:
        """Add a holder: backward."""
        storage.holders += 1
        storage.saved = True

    def overwrite(self, storage: Storage, category: Category, site: str) -> None:
        """Let a storage have another content, which an operation at `site` made."""
        storage.category, storage.site = category, site

    def capture(self) -> None:
        """Keep the highest instant allocated, as a captured graph does, so that later requests come on top of it.

        What a replay writes was requested when the graph was captured, workspaces among it.
        """
        highest = max(nbytes for *_, nbytes in self.highest.values())
        self.captured, self.live, self.workspaces = highest - self.live, highest, 0
        self.requested = ("", "", "", 0)

    @contextmanager
    def held(self, nbytes: int) -> Iterator[None]:
        """Hold `nbytes` inside the context: the current random state, while recomputation uses the saved one."""
        storage = self.take(nbytes, Category.GENERATOR) if nbytes else None
        yield
        if storage is not None:
            self.drop(storage)

    def add(self, earlier: Storage, later: Storage, site: str, *, in_place: bool) -> Storage:
        """Sum two gradients, into the earlier one if it has no other holder and is no view, else into a new tensor."""
        total = earlier
        if earlier.holders > 1 or earlier.viewed or not in_place:
            total = self.take(earlier.nbytes, earlier.category, site)
            self.mark("backward", "gradient sum", site)
            self.drop(earlier)
        self.drop(later)
        return total

    def converted(
        self, computed: Iterable[tuple[str, Storage]], operation: Operation, sizes: Mapping[str, int]
    ) -> list[tuple[str, Storage]]:
        """The gradients of a node after the engine has cast or summed those of another size, one by one."""
        gradients = []
        for name, storage in computed:
            nbytes = sizes[name]
            kept = storage.nbytes == nbytes
            gradients.append((name, storage if kept else self.take(nbytes, storage.category, storage.site)))
            self.mark("backward", operation.backward, operation.site)
            if not kept:
                self.drop(storage)
        return gradients

    def ordered(self, gradient: Storage, parameter: str) -> Storage:
        """The first gradient of a parameter, as autograd stores it: in the order of the parameter's elements."""
        if not gradient.transposed:
            return gradient
        site = parameter.rpartition(".")[0]
        copied = self.take(gradient.nbytes, Category.GRADIENT, site)
        self.mark("backward", "AccumulateGrad", site)
        self.drop(gradient)
        return copied

    def mark(self, phase: str, operation: str, site: str) -> None:
        """Record this instant if it is the highest of its part of the step."""
        part = (phase, "" if phase == "update" else _module(site))
        highest, live = self.highest.get(part), self.live
        if highest is None or live > highest[3]:
            self.highest[part] = (phase, operation, site, live)
            self.note(part)
        asked = live + self.workspaces - self.captured
        if asked > self.requested[3]:
            self.requested = (phase, operation, site, asked)

    def end_passes(self) -> None:
        """Nothing happens when the last backward has ended, before the update."""

    def note(self, part: Part) -> None:
        """Keep more of the instant that has become the highest of its part."""

    def mark_with(self, temporaries: Sequence[Tensor], phase: str, operation: str, site: str) -> None:
        """Record an instant at which temporaries are allocated as well."""
        scratch = [self.take(tensor.nbytes) for tensor in temporaries]
        self.mark(phase, operation, site)
        for storage in scratch:
            self.drop(storage)

    def mark_inside(self, nbytes: int, phase: str, operation: str, site: str) -> None:
        """Record an instant at which a kernel has taken some bytes, if it takes any."""
        for storage in self.take_if(nbytes, Category.TEMPORARY, site):
            self.mark(phase, operation, site)
            self.drop(storage)

    def repeat(self, since: tuple[int, int], times: int) -> None:
        """Add the allocations made since `since` another `times` times."""
        self.allocations += (self.allocations - since[0]) * times
        self.allocated_bytes += (self.allocated_bytes - since[1]) * times


@lru_cache(maxsize=4096)
def _module(site: str) -> str:
    """Module of a site for the table of instants: `blocks.3.attention` → `blocks.3`; `head.norm` → `head`."""
    parts = site.split(".")
    return ".".join(parts[:2]) if parts[0] == "blocks" else parts[0]
