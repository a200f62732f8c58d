"""Bytes of a step over time, and the parts of its peak or of any instant.

Micro-batches run one after the other, or in the order of a pipeline's schedule. Peak memory is the largest of all
instants, never a sum of maxima. Each byte that is alive then belongs to one part, and the parts sum to the peak
exactly.

The replay counts bytes by part, and notes the counts at each instant that is the highest of its part of the step. A
storage that backward holds counts as saved, by the module that made it. One that a gradient has overwritten counts as
that gradient. The blocks of the peak are counted in a second replay, which ends its count when the bytes alive are
those of the known peak. A captured graph keeps a pool instead of blocks, so it has none.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from assay.cost.simulation.allocator import ACTIVATION, Category, Ledger, Moment, Part, Requests, Storage
from assay.cost.simulation.micro_batch import Halved, Pass
from assay.cost.simulation.step_state import PlayedStep, StepNumbers
from assay.cost.step_cost import Cost


@dataclass(frozen=True)
class Timeline:
    """Memory of a replayed step."""

    peak: Moment
    requested: Moment
    """Highest instant with the workspaces of libraries, which the other figures leave out."""
    instants: tuple[Moment, ...]
    """The highest instant of each part of the step, in order: forward and backward by module, update."""
    saved_bytes: int
    """Bytes of the distinct storages saved for backward after a micro-batch's forward, without parameters. In a
    pipeline it is the maximum over the schedule."""
    allocations: int
    """Number of allocations in one optimizer step."""
    allocated_bytes: int
    """Sum of their bytes."""


def replay(cost: Cost, ledger: Ledger | None = None) -> Timeline:
    """Play a step, and return its instants.

    `ledger` has counted the bytes that exist before the step; the default counts only sums.
    """
    ledger = Ledger(live=cost.held_bytes) if ledger is None else ledger
    saved = play(cost, ledger)
    instants = tuple(Moment(*fields) for fields in ledger.highest.values())
    peak = max(instants, key=lambda moment: moment.nbytes)
    return Timeline(peak, Moment(*ledger.requested), instants, saved, ledger.allocations, ledger.allocated_bytes)


def play(cost: Cost, ledger: Ledger, *, update: bool = True) -> int:
    """Play a step into a ledger; return the bytes saved for backward, as in `Timeline`.

    Only two micro-batches are played: later ones repeat the second, so its counts are scaled. Where ranks sum gradients
    after the last one, three are: those between have all gradients whole. Each leaves the norms of its blocks' outputs,
    and the second is played with those of all that it stands for. Without `update` the step ends before the optimizer's
    update.
    """
    step, figures, saved = PlayedStep(cost, ledger), StepNumbers(ledger), 0
    # A batch in the host's memory is not torch's; on a GPU the step holds the whole of it until it ends.
    for one in cost.batch.tensors if cost.kernels.gpu is not None else ():
        ledger.take(0 if one.batched else one.nbytes, Category.BATCH)
    played = min(cost.micro_batches, 3 if cost.sharding.groups else 2)
    for index in range(played) if not cost.order else ():
        since = (ledger.allocations, ledger.allocated_bytes)
        passing = Pass(step, step.stages[0], first=index == 0, last=index + 1 == played)
        if index == 1:
            figures.take((cost.micro_batches - played) * len(step.stages[0].watched))
        passing.forward()
        saved = _together(step, [passing])
        figures.begin_backward()
        passing.backward()
        figures.end_backward()
        if index == 1:
            ledger.repeat(since, cost.micro_batches - played)
    if cost.order:
        saved = _in_order(step)
    if cost.replayed:
        ledger.capture()
        step.multiply_again()
    ledger.end_passes()
    if update:
        step.update(cost.update)
    return saved


def _in_order(step: PlayedStep) -> int:
    """Play the actions of the schedule; returns the largest number of bytes saved for backward at once."""
    alive: dict[tuple[int, int], Halved] = {}
    highest, last = 0, step.cost.micro_batches - 1
    whole = (one.nbytes for one in step.cost.batch.tensors if not one.batched)
    step.ledger.take(sum(whole), Category.BATCH)  # the schedule's own copy
    for action in step.cost.order:
        key = (action.micro_batch, action.chunk)
        if action.kind == "F":
            first = action.micro_batch == 0
            alive[key] = Halved(step, step.stages[action.chunk], first=first, last=action.micro_batch == last)
            alive[key].forward()
            highest = max(highest, _together(step, alive.values()))
        elif action.kind == "I":
            alive[key].input_gradients()
        elif action.kind == "W":
            alive.pop(key).weight_gradients()
        else:
            alive.pop(key).backward()
    return highest


def _together(step: PlayedStep, passes: Iterable[Pass]) -> int:
    """Bytes that several micro-batches save; tables and token ids, which all of them share, count once."""
    shared = {one.name for one in (*step.cost.tables, *step.cost.batch.tensors) if not one.batched}
    kept = [one.saved() for one in passes]
    own = sum(step.sizes[name] for names in kept for name in names - shared)
    return own + sum(step.sizes[name] for name in shared & set().union(*kept))


_SAVED = "saved: "
_IN_USE, TABLES, _NUMBERS = "activations in use", "tables and buffers", "figures and wrapped numbers"
SAVED_KINDS = ("embedding", "norms", "attention", "MLP", "residual stream", "logits and loss")
"""Kinds of modules by which saved activations are sorted."""
PARTS = (
    "weights",
    "optimizer state",
    "gradients",
    TABLES,
    "token ids and targets",
    "gathered weights",
    "messages of collectives",
    "copies of weights",
    *(f"{_SAVED}{kind}" for kind in SAVED_KINDS),
    "saved: generator states",
    _IN_USE,
    "gradients of activations",
    "temporaries",
    _NUMBERS,
)
"""Names of all parts, in the order in which they are shown."""
CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "weights": ("weights",),
    "optimizer state": ("optimizer state",),
    "gradients": ("gradients",),
    "copies of weights": ("copies of weights", "gathered weights"),
    "saved for backward": tuple(part for part in PARTS if part.startswith(_SAVED)),
    "activations": (_IN_USE, "gradients of activations"),
    "temporaries": ("temporaries", _NUMBERS),
    "batch, tables, messages": (TABLES, "token ids and targets", "messages of collectives"),
}
"""Categories of figures, from the lowest layer on, with the parts that each has."""

_NAMES = {
    Category.ACTIVATION: _IN_USE,
    Category.COPY: "copies of weights",
    Category.GENERATOR: "saved: generator states",
    Category.ACTIVATION_GRADIENT: "gradients of activations",
    Category.GRADIENT: "gradients",
    Category.GATHERED: "gathered weights",
    Category.MESSAGE: "messages of collectives",
    Category.BATCH: "token ids and targets",
    Category.NUMBER: _NUMBERS,
    Category.TEMPORARY: "temporaries",
}


@dataclass
class Sorted(Ledger):
    """A ledger that counts its storages by part.

    `take` and `drop` repeat those of `Ledger`, because calls of these would double the time of the most frequent steps.
    """

    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PARTS, 0))
    """Bytes alive by part. Tables lose those of buffers whose tensors were replaced by ones that operations made."""
    noted: dict[Part, dict[str, int]] = field(default_factory=dict)
    """Counts at the highest instant of each part of the step, in the order of `highest`."""

    def take(self, nbytes: int, category: Category = Category.TEMPORARY, site: str = "") -> Storage:
        """Allocate a storage, and count it."""
        self.live += nbytes
        self.allocations += 1
        self.allocated_bytes += nbytes
        name = _NAMES[category]
        self.counts[name] += nbytes
        return Storage(nbytes, category, site, counted=name)

    def drop(self, storage: Storage) -> None:
        """Remove one holder; with the last the storage counts no more."""
        storage.holders -= 1
        if storage.holders == 0:
            self.live -= storage.nbytes
            self.counts[storage.counted or TABLES] -= storage.nbytes

    def save(self, storage: Storage) -> None:
        """Add a holder: backward."""
        storage.holders += 1
        if not storage.saved:
            storage.saved = True
            self._count(storage)

    def overwrite(self, storage: Storage, category: Category, site: str) -> None:
        """Let a storage have another content, and count it as that."""
        super().overwrite(storage, category, site)
        self._count(storage)

    def capture(self) -> None:
        """Keep the highest instant allocated, with its parts."""
        kept = max(self.highest, key=lambda part: self.highest[part][3])
        super().capture()
        self.counts = self.noted[kept].copy()

    def note(self, part: Part) -> None:
        """Keep the counts of this instant."""
        self.noted[part] = self.counts.copy()

    def _count(self, storage: Storage) -> None:
        """Count a storage that has changed under its new name, unless the step began with it."""
        name = _saved(storage.site) if storage.saved and storage.category is ACTIVATION else None
        name = name or _NAMES[storage.category]
        if storage.counted and name != storage.counted:
            self.counts[storage.counted] -= storage.nbytes
            self.counts[name] += storage.nbytes
            storage.counted = name


@dataclass
class _Requested(Sorted):
    """A ledger that also keeps the requests of the passes, for a simulation of the device's allocator."""

    requests: Requests = field(default_factory=Requests)
    passes: tuple[int, ...] = ()

    def take(self, nbytes: int, category: Category = Category.TEMPORARY, site: str = "") -> Storage:
        """Allocate a storage, and record the request."""
        storage = super().take(nbytes, category, site)
        self.requests.add(storage)
        return storage

    def drop(self, storage: Storage) -> None:
        """Remove one holder; with the last the storage is freed."""
        super().drop(storage)
        if storage.holders == 0:
            self.requests.free(storage)

    def end_passes(self) -> None:
        """Keep what was requested until now."""
        self.passes = tuple(self.requests.events)


@dataclass(frozen=True)
class Composed:
    """A replayed step with the parts of its instants."""

    timeline: Timeline
    held: Mapping[str, int]
    """Bytes on the device before the step, by part."""
    counts: tuple[Mapping[str, int], ...]
    """Further bytes at each instant of the timeline, by part."""
    requests: tuple[int, ...] | None = None
    """Requests and frees of a step on a GPU before its update, as in `reserved.record_events`; None on a CPU."""

    def parts(self, instant: Moment) -> dict[str, int]:
        """Bytes of each part of one of the timeline's instants, without parts of zero bytes."""
        return self._whole(self.counts[self.timeline.instants.index(instant)])

    def _whole(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Add the bytes before the step, and leave out parts of zero bytes."""
        whole = {part: count + self.held.get(part, 0) for part, count in counts.items()}
        return {part: count for part, count in whole.items() if count}

    def over_step(self) -> dict[str, Any]:
        """Values of a record `MemoryOverStep`."""
        return {"instants": tuple(map(str, self.timeline.instants)), "layers": self.layers()}

    def layers(self) -> dict[str, tuple[int, ...]]:
        """Bytes of each category at each instant of the timeline; a category without a byte is left out."""
        parts = list(map(self._whole, self.counts))
        found = {
            name: tuple(sum(one.get(part, 0) for part in members) for one in parts)
            for name, members in CATEGORIES.items()
        }
        return {name: counts for name, counts in found.items() if any(counts)}


def compose_peak(cost: Cost) -> Composed:
    """Replay a step, and sort its bytes by part."""
    ledger = Sorted(cost.held_bytes) if cost.kernels.gpu is None else _Requested(cost.held_bytes)
    timeline, held = replay(cost, ledger), _held(cost)
    requests = ledger.passes if isinstance(ledger, _Requested) else None
    return Composed(timeline, held, tuple(ledger.noted.values()), requests)


def _held(cost: Cost) -> dict[str, int]:
    """Bytes on the device before a step, by part; they sum to `Cost.held_bytes`."""
    lasting = {TABLES: sum(tensor.nbytes for tensor in (*cost.tables, *cost.buffers))}
    if cost.sharding.on_host:
        return lasting
    return {"weights": cost.parameter_bytes, "optimizer state": cost.optimizer_state_bytes, **lasting}


@lru_cache(maxsize=4096)
def _saved(site: str) -> str:
    """Part of an activation that backward holds, by the kind of the module at its site."""
    first, *inner = site.split(".")
    if first == "blocks":
        inner = inner[1:]
    module = inner[0] if inner else ""
    if module.endswith("norm"):
        return f"{_SAVED}norms"
    if first == "embedding":
        return f"{_SAVED}embedding"
    if first == "head":
        return f"{_SAVED}logits and loss"
    return _SAVED + {"attention": "attention", "mlp": "MLP"}.get(module, "residual stream")


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
    return ledger.at_peak + _blocks_before(cost)


def _blocks_before(cost: Cost) -> Blocks:
    """Blocks that exist before the step."""
    found = Counter((one.nbytes, TABLES) for one in (*cost.tables, *cost.buffers))
    if not cost.sharding.on_host:
        found.update((one.nbytes, "weights") for one in cost.pieces.values())
        found.update((one.nbytes, "optimizer state") for one in cost.optimizer_state)
    return found
