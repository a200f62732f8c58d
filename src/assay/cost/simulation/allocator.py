"""Live bytes while a step is played, the highest instant of each of its parts, and the lifetime of each storage.

A lifetime ends with the last use of a storage on the tape; recomputed segments have lifetimes of their own.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from assay.cost.layers import Tape, is_composed_norm
from assay.cost.operation import Gradient, Operation, Tensor, alter

if TYPE_CHECKING:
    from assay.cost.step_cost import Backward


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


Returned = tuple[str, Gradient]
"""An input of an operation that has a gradient, and the storage of that."""


@dataclass(frozen=True)
class Segment:
    """Consecutive operations that are recomputed in backward, as positions on the tape."""

    first: int
    last: int
    stop: int
    """Last operation that saves something: recomputation ends there (pytorch/pytorch#96866)."""
    end: int
    """First operation that is not recomputed. An operation that saves only its inputs does so before it executes."""
    stops_within: bool
    """True if the operation at `stop` is composed of several, and recomputation ends before the one that makes its
    result."""
    cached: frozenset[int]
    """Operations whose results stay allocated from the first forward on, so that they are not recomputed."""
    inputs: tuple[str, ...]
    """Earlier storages that the segment reads, without parameters and tables. The first forward saves only these and
    the results in `cached`."""

    @property
    def runs(self) -> frozenset[int]:
        """Operations that are recomputed."""
        return frozenset(range(self.first, self.end)) - self.cached


@dataclass(frozen=True)
class Lifetimes:
    """Storages, gradients and segments of a tape."""

    base: dict[str, str]
    """The storage behind each value: the value itself, unless it is a view."""
    last_use: dict[str, int]
    """Last operation that reads, holds or makes each storage."""
    returned: Sequence[Sequence[Returned]]
    """Gradients that backward of each operation returns."""
    readers: dict[str, int]
    """Number of operations that contribute a gradient to each parameter."""
    dying: dict[int, list[str]]
    """Storages that are released after an operation, by its position; without tensors that a context holds."""
    segments: tuple[Segment, ...]
    hands_over: frozenset[int]
    """First operations of the modules that accumulate all their gradients together, after the backward of this
    operation."""

    def read_last(self, index: int, operation: Operation) -> tuple[str, ...]:
        """Storages that the operation at `index` is the last to read, and does not save."""
        kept = {self.base[name] for name in operation.saves}
        read = dict.fromkeys(self.base[name] for name in operation.inputs)
        return tuple(base for base in read if base not in kept and self.last_use[base] == index)


def lifetimes_of(
    tape: Tape, values: Mapping[str, Tensor], learned: Collection[str], tables: Collection[str], backward: "Backward"
) -> Lifetimes:
    """Return the lifetimes of a tape, of which some values are learned and some are constant tables."""
    base: dict[str, str] = {}
    for name, tensor in values.items():
        base[name] = name if tensor.view_of is None else base[tensor.view_of]
    last_use: dict[str, int] = {}
    returned: list[list[Returned]] = []
    none = Gradient.NONE
    for index, operation in enumerate(tape):
        for name in operation.inputs + operation.holds:
            last_use[base[name]] = index
        for tensor in operation.outputs + operation.extras:
            last_use[base[tensor.name]] = index
        pairs = zip(operation.inputs, operation.gradients, strict=True)
        returned.append([one for one in pairs if one[1] is not none])
    readers = Counter([name for each in returned for name, _ in each if name in learned])
    dying: dict[int, list[str]] = {}
    for name, index in last_use.items():
        if not values[name].held:
            dying.setdefault(index, []).append(name)
    recomputed, together = backward.recomputed, backward.accumulated_together
    inside, lasting = _positions(tape, {*recomputed, *together}), {*learned, *tables}
    # A module above which nothing is trained saves nothing, and has no backward in which it could be recomputed.
    saving = [site for site in recomputed if any(tape[index].saves for index in inside[site])]
    segments = tuple(_segment(tape, site, inside[site], base, lasting, backward) for site in saving)
    begins = (inside[site][0] for site in together)
    ordered = tuple(sorted(segments, key=lambda segment: segment.first))
    return Lifetimes(base, last_use, returned, readers, dying, ordered, frozenset(begins))


def _positions(tape: Tape, sites: set[str]) -> dict[str, list[int]]:
    """Positions of the operations within each of some modules."""
    found: dict[str, list[int]] = {site: [] for site in sites}
    for index, operation in enumerate(tape) if sites else ():
        module = operation.site
        while module:
            if module in found:
                found[module].append(index)
            module = module.rpartition(".")[0]
    return found


def _segment(
    tape: Tape, site: str, inside: list[int], base: dict[str, str], lasting: set[str], backward: "Backward"
) -> Segment:
    operations = [tape[index] for index in inside]
    made = {tensor.name for operation in operations for tensor in (*operation.outputs, *operation.extras)}
    read = dict.fromkeys(base[name] for operation in operations for name in operation.inputs)
    stop = max(index for index in inside if tape[index].saves)
    outside = tuple(name for name in read if name not in made and name not in lasting)
    # Compiled code does not keep the last operation's result, because recomputation does not read it.
    needed = [index for index in inside if index < stop or site not in backward.accumulated_together]
    cached = frozenset(index for index in needed if tape[index].kind in backward.kept_results)
    end = stop + _keeps_its_own(tape[stop])
    return Segment(
        first=inside[0],
        last=inside[-1],
        stop=stop,
        end=end,
        stops_within=_is_composed(tape[stop]),
        cached=cached,
        inputs=outside,
    )


def before_product(operation: Operation) -> Operation:
    """The composed operation up to the product that makes its result.

    An RMS norm squares its input before it normalizes it. The mean of the squares is as large as the deviation, and
    exists with it and the squares.
    """
    mean = operation.extras[:1] if is_composed_norm(operation) else ()
    return alter(operation, outputs=(), scratch=operation.scratch._replace(forward=mean))


def _keeps_its_own(operation: Operation) -> bool:
    return not {tensor.name for tensor in (*operation.outputs, *operation.extras)}.isdisjoint(operation.saves)


def _is_composed(operation: Operation) -> bool:
    """True if it ends in a product that saves an earlier result: an RMS norm, or dropout with a float noise tensor."""
    if operation.compiled:
        return False
    noise = [one for one in operation.extras if one.dtype != "bool"]
    return is_composed_norm(operation) or (operation.name == "aten.mul" and bool(noise))
