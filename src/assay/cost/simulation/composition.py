"""The parts of a predicted peak: each byte that is alive at its instant belongs to one of them.

A second replay ends at the peak's instant, and sorts the storages that are alive then. A storage that backward holds
counts as saved, by the module that made it. One that a gradient has overwritten counts as that gradient. The parts sum
to the peak exactly.
"""

from collections import Counter
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
    """A ledger that knows its storages, and sorts them at one instant."""

    instant: Moment = field(kw_only=True)
    """The instant whose parts are wanted."""
    alive: set[Storage] = field(default_factory=set)
    replaced: int = 0
    """Bytes of buffers whose tensors were replaced by ones that operations made."""
    found: Counter[str] = field(default_factory=Counter)
    """Bytes of the storages alive at the instant, by part."""

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
        if self.live == self.instant.nbytes and self.instant == (phase, operation, site, self.live):
            self.found["tables and buffers"] -= self.replaced
            for storage in self.alive:
                self.found[_part(storage)] += storage.nbytes
            raise _Found


def composition(cost: Cost, timeline: Timeline) -> dict[str, int]:
    """Bytes of each part of the peak of `timeline`, a replay of `cost`, without parts of zero bytes.

    A captured graph keeps the parts of its own peak during the update, whose temporaries are added to them.
    """
    instant, temporaries = timeline.peak, 0
    if cost.replayed and instant.phase == "update":
        captured = [moment for moment in timeline.instants if moment.phase != "update"]
        instant = max(captured, key=lambda moment: moment.nbytes)
        temporaries = timeline.peak.nbytes - instant.nbytes
    ledger = _Sorting(live=cost.held_bytes, instant=instant)
    with suppress(_Found):
        replay(cost, ledger)
    bytes_of = Counter(_held(cost))
    bytes_of.update(ledger.found)
    bytes_of["temporaries"] += temporaries
    return {part: bytes_of[part] for part in PARTS if bytes_of[part]}


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
