"""The parts of a predicted peak, or of any instant: each byte that is alive then belongs to one of them.

A second replay sorts the storages that are alive at an instant, and ends when all that were asked for are found. A
storage that backward holds counts as saved, by the module that made it. One that a gradient has overwritten counts as
that gradient. The parts sum to the peak exactly.
"""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from assay.cost.simulation.allocator import Category, Ledger, Moment, Storage
from assay.cost.simulation.timeline import Timeline, replay
from assay.cost.step import Cost

_SAVED = "saved: "
SAVED_KINDS = ("embedding", "norms", "attention", "MLP", "residual stream", "logits and loss")
"""Kinds of modules by which saved activations are sorted."""
PARTS = (
    "weights",
    "optimizer state",
    "gradients",
    "tables and buffers",
    "token ids and targets",
    "gathered weights",
    "messages of collectives",
    "copies of weights",
    *(f"{_SAVED}{kind}" for kind in SAVED_KINDS),
    "saved: generator states",
    "activations in use",
    "gradients of activations",
    "temporaries",
)
"""Names of all parts, in the order in which they are shown."""

_NAMES = {
    Category.COPY: "copies of weights",
    Category.GENERATOR: "saved: generator states",
    Category.ACTIVATION_GRADIENT: "gradients of activations",
    Category.GRADIENT: "gradients",
    Category.GATHERED: "gathered weights",
    Category.MESSAGE: "messages of collectives",
    Category.BATCH: "token ids and targets",
    Category.TEMPORARY: "temporaries",
}


class _Found(Exception):
    """Ends the second replay at its instant."""


@dataclass
class _Sorting(Ledger):
    """A ledger that knows its storages, and sorts them at some instants."""

    instants: frozenset[Moment] = field(kw_only=True)
    """The instants whose parts are wanted."""
    alive: set[Storage] = field(default_factory=set)
    replaced: int = 0
    """Bytes of buffers whose tensors were replaced by ones that operations made."""
    found: dict[Moment, Counter[str]] = field(default_factory=dict)
    """Bytes of the storages alive at each instant, by part."""

    def __post_init__(self) -> None:
        self._sizes = frozenset(one.nbytes for one in self.instants)

    def take(self, nbytes: int, category: Category = Category.TEMPORARY, site: str = "") -> Storage:
        storage = super().take(nbytes, category, site)
        self.alive.add(storage)
        return storage

    def drop(self, storage: Storage) -> None:
        super().drop(storage)
        if storage.holders == 0:
            if storage not in self.alive:
                self.replaced += storage.nbytes
            self.alive.discard(storage)

    def mark(self, phase: str, operation: str, site: str) -> None:
        if self.live not in self._sizes:
            return
        here = Moment(phase, operation, site, self.live)
        if here in self.instants and here not in self.found:
            parts = Counter({"tables and buffers": -self.replaced})
            for storage in self.alive:
                parts[_part(storage)] += storage.nbytes
            self.found[here] = parts
            if len(self.found) == len(self.instants):
                raise _Found


def composition(cost: Cost, timeline: Timeline) -> dict[str, int]:
    """Bytes of each part of the peak of `timeline`, a replay of `cost`, without parts of zero bytes."""
    return compositions(cost, timeline, (timeline.peak,))[0]


def compositions(cost: Cost, timeline: Timeline, instants: Sequence[Moment]) -> list[dict[str, int]]:
    """Bytes of each part of some instants of `timeline`, a replay of `cost`, without parts of zero bytes.

    A captured graph keeps the parts of its own peak during the update, whose temporaries are added to them.
    """
    captured = [moment for moment in timeline.instants if moment.phase != "update"] if cost.replayed else []
    kept = max(captured, key=lambda moment: moment.nbytes, default=None)
    sorted_at = [kept if kept is not None and one.phase == "update" else one for one in instants]
    ledger = _Sorting(live=cost.held_bytes, instants=frozenset(sorted_at))
    with suppress(_Found):
        replay(cost, ledger)
    held, found = _held(cost), []
    for instant, moment in zip(instants, sorted_at, strict=True):
        bytes_of = Counter(held)
        bytes_of.update(ledger.found.get(moment, {}))
        bytes_of["temporaries"] += instant.nbytes - moment.nbytes
        found.append({part: bytes_of[part] for part in PARTS if bytes_of[part]})
    return found


def _held(cost: Cost) -> dict[str, int]:
    """Bytes on the device before a step, by part; they sum to `Cost.held_bytes`."""
    lasting = {"tables and buffers": sum(tensor.nbytes for tensor in (*cost.tables, *cost.buffers))}
    if cost.sharding.on_host:
        return lasting
    return {"weights": cost.parameter_bytes, "optimizer state": cost.optimizer_state_bytes, **lasting}


def _part(storage: Storage) -> str:
    """Part to which a storage belongs."""
    if storage.category is not Category.ACTIVATION:
        return _NAMES[storage.category]
    return _SAVED + _kind(storage.site) if storage.saved else "activations in use"


def _kind(site: str) -> str:
    """Kind of the module at a site, one of `SAVED_KINDS`."""
    first, *inner = site.split(".")
    if first == "blocks":
        inner = inner[1:]
    module = inner[0] if inner else ""
    if module.endswith("norm"):
        return "norms"
    if first == "embedding":
        return "embedding"
    if first == "head":
        return "logits and loss"
    return {"attention": "attention", "mlp": "MLP"}.get(module, "residual stream")
