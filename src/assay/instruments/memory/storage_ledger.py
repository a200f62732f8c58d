"""A ledger of the storages of one step, real or fake: each byte alive at the peak belongs to a part.

A dispatch mode sees the result of every operator. A storage counts from the operator that returns it until it is freed,
which a weak reference reports. So the ledger needs no values, and reads a step on fake tensors as well, which have
shapes and no data (`torch._subclasses.fake_tensor`).

The part of a storage is decided once the step is over. A storage that a gradient has at the update counts as gradient.
One that autograd holds at the peak is saved, by the class of the module whose forward made it. Storages alive before
the step have the part that their owner names.

Caveats: memory that a kernel takes and frees inside one operator is not seen. On the models of this package the peak is
0 to 0.02 % too low. Compiled code hides its operators, so it is not watched here.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
from torch import nn
from torch._ops import OpOverload
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from assay.instruments import operations
from assay.instruments.memory.saved_tensors import SavedTensors
from assay.instruments.memory.storages import identity, storages
from assay.instruments.phase import current_phase
from assay.records.own import OTHERS
from assay.records.trace import Phase

WEIGHTS, STATE, GRADIENTS, BUFFERS = "weights", "optimizer state", "gradients", "tables and buffers"
BATCH, SAVED = "token ids and targets", "saved: "
_PARTS: Mapping[str, str] = {
    "forward": "activations in use",
    "recompute": "activations in use",
    "backward": "gradients of activations",
    "update": "temporaries",
}
"""Part of a storage that nothing else holds, by the phase that made it."""

Owners = Mapping[int, str]
"""Part by the identity of a storage that was alive before the step."""


class Origin(NamedTuple):
    """Where a storage comes from, as far as it is known."""

    path: str = ""
    """Name of the parameter or of the module within the model."""
    operator: str = ""
    line: str = ""
    """File and line of the code that asked for it."""


NOWHERE = Origin()
"""An origin of which nothing is known."""


class StepObserver:
    """Receives each operator of a step; this one keeps nothing."""

    def origin(self, phase: Phase, operator: str, path: str) -> Origin:
        """Return the origin of what an operator is about to make in a phase, while the module of this path runs."""
        return NOWHERE

    def done(self, phase: Phase, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Note an operator that has run."""


@dataclass(eq=False)
class LedgerEntry:
    """One storage: its size, what made it, and whether a gradient has it."""

    nbytes: int
    made_in: str
    """Phase, or the part of a storage that is older than the step."""
    module: str = ""
    """Class of the module whose forward was running."""
    gradient: bool = False
    origin: Origin = NOWHERE


@dataclass(frozen=True)
class Peak:
    """Highest number of bytes alive in a step, and its parts."""

    nbytes: int
    instant: str
    """Phase and operator that reached it first."""
    parts: Mapping[str, int]
    alive: tuple[tuple[str, LedgerEntry], ...] = ()
    """Each storage that is alive then, after its part."""


class _Change(NamedTuple):
    """A change of the bytes that are alive, or of what autograd holds."""

    entry: LedgerEntry
    nbytes: int
    holders: int
    """1 if autograd takes the storage, -1 if it releases it, else 0."""
    instant: str


class StorageLedger(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Context of one step or several. `begin` begins the one whose highest instant `peak` returns."""

    def __init__(self, device_type: str = "cpu") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device_type
        self._modules: tuple[nn.Module, ...] = ()
        self._entries: dict[int, tuple[LedgerEntry, object]] = {}
        self._older: list[LedgerEntry] = []
        self._changes: list[_Change] = []
        self._running: list[tuple[str, str]] = []
        self._updating = 0
        self._operator = "none"
        self._open = ExitStack()
        self._origin = NOWHERE
        self.observer = StepObserver()

    def begin(self, modules: Iterable[nn.Module], owners: Owners, tensors: Iterable[torch.Tensor] = ()) -> None:
        """Begin the step of some modules. What is alive now is older, with the part that `owners` gives it.

        `tensors` are alive, too, but were made before this context was entered.
        """
        for storage in (storage for one in tensors for storage in storages(one)):
            if identity(storage) not in self._entries:
                self._enter(storage, "")
        self._modules = tuple(modules)
        for name, (entry, _) in self._entries.items():
            entry.made_in, entry.gradient = owners.get(name, OTHERS), False
        self._older = [entry for entry, _ in self._entries.values()]
        self._changes.clear()
        for handle in (handle for module in self._modules for handle in self._follow(module)):
            self._open.callback(handle.remove)

    @property
    def alive_bytes(self) -> int:
        """Bytes that are alive now."""
        return sum(entry.nbytes for entry, _ in list(self._entries.values()))

    def name_origins(self, origins: Mapping[int, Origin]) -> None:
        """Tell where storages come from, by their identity."""
        for name, (entry, _) in self._entries.items():
            entry.origin = origins.get(name, entry.origin)

    def leave_out(self, tensors: Iterable[torch.Tensor]) -> None:
        """Count some tensors no longer, because outside of a trace their memory is not torch's."""
        for storage in (storage for one in tensors for storage in storages(one)):
            if found := self._entries.get(identity(storage)):
                self._note(found[0], -1)
                found[0].nbytes = 0

    def hand_over(self, tensor: torch.Tensor) -> None:
        """Count a tensor no longer, because the next one takes its memory."""
        for storage in storages(tensor):
            self._leave(identity(storage))

    def take(self, nbytes: int, made_in: str) -> LedgerEntry:
        """Count bytes that belong to no tensor, such as a library's workspace, until `give_back` gets the entry.

        `made_in` is their part, or the phase whose part they have.
        """
        entry = LedgerEntry(nbytes, made_in, origin=self._origin)
        self._note(entry)
        return entry

    def give_back(self, entry: LedgerEntry) -> None:
        """Count the bytes of `take` no longer."""
        self._note(entry, -1)

    def peak(self, without: str | None = None) -> Peak:
        """Return the highest instant of the step, with each byte in one part; `without` is a part to leave out."""
        highest = now = sum(one.nbytes for one in self._older)
        reached, instant = 0, "before the step"
        for place, change in enumerate(self._changes, start=1):
            if change.entry.made_in == without:
                continue
            now += change.nbytes
            if now > highest:
                highest, reached, instant = now, place, change.instant
        return self._at(reached, highest, instant, without)

    def saved_peak(self) -> tuple[LedgerEntry, ...]:
        """Return what autograd holds when it holds the most bytes, without parameters."""
        holders, now, highest = Counter[LedgerEntry](), 0, 0
        found: tuple[LedgerEntry, ...] = ()
        moves = [one for one in self._changes if one.holders]
        for move, after in zip(moves, [*moves[1:], None], strict=True):
            before = holders[move.entry]
            holders[move.entry] = before + move.holders
            now += move.entry.nbytes * ((holders[move.entry] > 0) - (before > 0))
            if now > highest and (after is None or after.holders < 0):
                highest, found = now, tuple(one for one, count in holders.items() if count > 0)
        return found

    def _at(self, reached: int, nbytes: int, instant: str, without: str | None) -> Peak:
        """Return the instant after so many changes, which has so many bytes."""
        alive, held = Counter(dict.fromkeys(self._older, 1)), Counter[LedgerEntry]()
        for change in self._changes[:reached]:
            if change.entry.made_in == without:
                continue
            alive[change.entry] += (change.nbytes > 0) - (change.nbytes < 0)
            held[change.entry] += change.holders
        living = [(_part(one, saved=held[one] > 0), one) for one, count in alive.items() if count > 0]
        parts: Counter[str] = Counter()
        for part, entry in living:
            parts[part] += entry.nbytes
        return Peak(nbytes, instant, dict(parts.most_common()), tuple(living))

    def __enter__(self) -> Self:
        for handle in (
            register_optimizer_step_pre_hook(self._before_update),
            register_optimizer_step_post_hook(self._after_update),
        ):
            self._open.callback(handle.remove)
        self._open.enter_context(_Held(partial(self._hold, by=1), partial(self._hold, by=-1)))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._open.close()
        self._entries.clear()

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._operator = operations.name_of(func) if isinstance(func, OpOverload) else str(func)
        phase = current_phase(updating=self._updating > 0)
        self._origin = self.observer.origin(phase, self._operator, self._path)
        result = func(*args, **(kwargs or {}))
        self.observer.done(phase, func, args, kwargs or {}, result)
        for one in operations.tensors_in(result):
            for storage in storages(one) if one.device.type == self._device else ():
                if identity(storage) not in self._entries and storage.resizable():  # or the memory is not torch's
                    self._note(self._enter(storage, phase))
        return result

    @property
    def _path(self) -> str:
        """Path of the module that runs; empty outside of any."""
        return self._running[-1][1] if self._running else ""

    def _enter(self, storage: torch.UntypedStorage, made_in: str) -> LedgerEntry:
        module = self._running[-1][0] if self._running else "no module"
        entry = LedgerEntry(storage.nbytes(), made_in, module, origin=self._origin)
        name = identity(storage)
        self._entries[name] = entry, weakref.ref(storage, lambda _: self._leave(name))
        return entry

    def _leave(self, name: int) -> None:
        if found := self._entries.pop(name, None):
            self._note(found[0], -1)

    def _hold(self, name: int, by: int) -> None:
        if found := self._entries.get(name):
            self._note(found[0], 0, by)

    def _note(self, entry: LedgerEntry, sign: int = 1, holders: int = 0) -> None:
        phase = current_phase(updating=self._updating > 0)
        node = torch._C._current_autograd_node() if phase == "backward" else None
        what = self._operator if node is None else node.name().rstrip("0123456789").rpartition("::")[2]
        self._changes.append(_Change(entry, sign * entry.nbytes, holders, f"{phase}: {what}"))

    def _before_update(self, *_: Any) -> None:
        self._updating += 1
        for name, parameter in (pair for part in self._modules for pair in part.named_parameters()):
            for storage in () if parameter.grad is None else storages(parameter.grad):
                if found := self._entries.get(identity(storage)):
                    found[0].gradient, found[0].origin = True, Origin(name)

    def _after_update(self, *_: Any) -> None:
        self._updating -= 1

    def _follow(self, part: nn.Module) -> Iterable[Any]:
        for path, module in part.named_modules():
            entered = (type(module).__name__, path)
            yield module.register_forward_pre_hook(lambda *_, entered=entered: self._running.append(entered))
            yield module.register_forward_hook(lambda *_: self._running.pop() and None, always_call=True)


class _Held(SavedTensors):
    """Hooks that report the storages that autograd takes and releases, instead of counting them."""

    def __init__(self, taken: Callable[[int], None], released: Callable[[int], None]) -> None:
        super().__init__(set(), str)
        self._taken, self._released = taken, released

    def _keep(self, storage: torch.UntypedStorage, dtype: torch.dtype) -> int | None:
        self._taken(identity(storage))
        return identity(storage)

    def _release(self, names: list[int]) -> None:
        for name in names:
            self._released(name)


def _part(entry: LedgerEntry, *, saved: bool) -> str:
    if entry.gradient:
        return GRADIENTS
    if entry.made_in not in _PARTS:
        return entry.made_in
    if saved:
        return SAVED + entry.module
    return _PARTS[entry.made_in]


def owners_of(
    modules: Iterable[nn.Module], state: Iterable[torch.Tensor], batch: Iterable[torch.Tensor] = ()
) -> Owners:
    """Name the part of each storage that modules, an optimizer's state and a batch have."""
    found: dict[int, str] = {}

    def claim(part: str, tensors: Iterable[torch.Tensor]) -> None:
        for storage in (storage for one in tensors for storage in storages(one)):
            found.setdefault(identity(storage), part)

    for module in modules:
        claim(WEIGHTS, module.parameters())
        claim(GRADIENTS, (one.grad for one in module.parameters() if one.grad is not None))
        claim(BUFFERS, module.buffers())
    claim(STATE, state)
    claim(BATCH, batch)
    return found
