"""Take one training step apart: the seconds, FLOPs, bytes, class and module of every operator.

A dispatch mode reads the clock before and after each operator. On a GPU it also synchronizes with the device, so the
time of a kernel includes its launch.

Overhead: the time between operators is in no part, and entering the mode, a few microseconds an operator, partly is. So
the parts of a small model may sum to more than an unwatched step takes; the record has both. Compiled code and replayed
graphs dispatch no operators, so they are refused.

A forward operator belongs to the innermost module whose forward is running. A backward operator belongs to the module
whose forward created its autograd node. Nodes have sequence numbers, and the latest number is known while a forward
operator runs. The accumulation of a gradient belongs to the module that owns the weight. A recomputed operator belongs
to the innermost module that the recomputation calls, or else to the checkpointed module. That module is found from the
node that triggers the recomputation, which is inside it.

The timeline of operators also has the memory alive after each one. Its ledger of storages is entered last, so that it
sees an operator first, and its work lies between two operators. Memory that a kernel takes and frees inside an operator
is not seen.
"""

import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch._ops import OpOverload
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from assay.errors import UsageError
from assay.files import storage_errors
from assay.instruments import operations
from assay.instruments.memory.allocator_history import MOST_EVENTS
from assay.instruments.memory.memory_pass import live_tensors
from assay.instruments.memory.storage_ledger import StorageLedger
from assay.instruments.phase import current_phase
from assay.records.anatomy import BETWEEN, UPDATE, Anatomy, Operator, Part
from assay.records.trace import OperationClass, Phase
from assay.step.compiled import Captures
from assay.step.graphs import StepGraphs
from assay.step.program import Step
from assay.step.recomputed import is_repeated


class Owners:
    """Tracks the module to which the running operator belongs."""

    def __init__(self) -> None:
        self.updating = 0
        """Number of nested updates that are running."""
        self._running: list[str] = []
        self._of_node: dict[int, str] = {}
        self._of_weight: dict[int, str] = {}
        self._repeated: set[str] = set()
        """Names of the checkpointed modules."""

    def follow(self, parts: Iterable[nn.Module]) -> Iterable[Any]:
        """Hook every module, and yield the handles."""
        for part in parts:
            for name, module in part.named_modules():
                if is_repeated(module):
                    self._repeated.add(name)
                yield module.register_forward_pre_hook(partial(self._enter, name))
                yield module.register_forward_hook(self._leave, always_call=True)
                for weight in module.parameters(recurse=False):
                    self._of_weight.setdefault(id(weight), name)

    def now(self) -> tuple[str, Phase]:
        """Return (module, phase) of the operator that is about to run."""
        phase = current_phase(updating=self.updating > 0)
        if phase == "update":
            return UPDATE, phase
        if phase == "forward":
            return self._of_forward(), phase
        node = torch._C._current_autograd_node()
        if phase == "recompute":
            return self._of_forward(self._repeated_around(node)), phase
        weight = getattr(node, "variable", None)
        if weight is not None:
            return self._of_weight.get(id(weight), BETWEEN), phase
        return self._of_node.get(node._sequence_nr(), BETWEEN), phase

    def _repeated_around(self, node: Any) -> str:
        """The checkpointed module that contains a backward node, or `BETWEEN` if there is none."""
        name = self._of_node.get(node._sequence_nr(), "")
        while name and name not in self._repeated:
            name = name.rpartition(".")[0]
        return name or BETWEEN

    def _of_forward(self, outside: str = BETWEEN) -> str:
        """The module whose forward is running, else `outside`.

        The newest autograd node is attributed to it, unless the node already has a module.
        """
        module = self._running[-1] if self._running else outside
        self._of_node.setdefault(torch._C._autograd._get_sequence_nr() - 1, module)
        return module

    def _enter(self, name: str, module: nn.Module, args: Any) -> None:
        self._running.append(name or BETWEEN)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self._running.pop()


_Key = tuple[str, Phase, OperationClass]
_Train = Callable[[Step, int], object]

WARMUP_STEPS, UNWATCHED_STEPS, WATCHED_STEPS = 2, 5, 5
"""Numbers of steps: untimed; timed as a whole; taken apart, where each part keeps its least time."""
TAKEN_STEPS = WARMUP_STEPS + UNWATCHED_STEPS + WATCHED_STEPS
"""Steps that `anatomy` trains in all."""


def anatomy(step: Step, train: _Train) -> Anatomy:
    """Train `TAKEN_STEPS` steps with `train(step, index)`, and take the last ones apart.

    Raises `UsageError` if the step is compiled, replayed as a graph or divided among ranks.
    """
    if step.program.witness(Captures) is not None:
        raise UsageError("compiled code has no single operators to time; leave compilation out of `assay anatomy`")
    if step.program.witness(StepGraphs) is not None:
        raise UsageError("replayed graphs have no single operators to time; leave them out of `assay anatomy`")
    if step.program.parallel.mesh is not None and step.program.parallel.mesh.size() > 1:
        raise UsageError(
            "`assay anatomy` measures the step of one device; leave out techniques that divide it among ranks"
        )
    for index in range(WARMUP_STEPS):
        train(step, index)
    whole = [_timed(step, partial(train, step, WARMUP_STEPS + index)) for index in range(UNWATCHED_STEPS)]
    first = WARMUP_STEPS + UNWATCHED_STEPS
    return taken_apart(step, train, range(first, first + WATCHED_STEPS), statistics.median(whole))


def taken_apart(step: Step, train: _Train, indices: Iterable[int], step_seconds: float) -> Anatomy:
    """Take apart the steps `indices`, of which an unwatched one takes `step_seconds`."""
    taken = [_apart(step, train, index) for index in indices]
    return Anatomy(
        parts=_least([parts for parts, _ in taken]),
        step_seconds=step_seconds,
        watched_seconds=statistics.median(seconds for _, seconds in taken),
    )


def _apart(step: Step, train: _Train, index: int) -> tuple[tuple[Part, ...], float]:
    with Dissector(step) as dissector:
        seconds = _timed(step, lambda: train(dissector.watch(), index))
    return dissector.parts(), seconds


def _least(steps: list[tuple[Part, ...]]) -> tuple[Part, ...]:
    """Give each part its least time over steps: all do the same work, so the least was disturbed least."""
    seconds: dict[_Key, float] = {}
    for part in (part for parts in steps for part in parts):
        key = (part.module, part.phase, part.operation_class)
        seconds[key] = min(part.seconds, seconds.get(key, part.seconds))
    return tuple(
        part.model_copy(update={"seconds": seconds[part.module, part.phase, part.operation_class]})
        for part in steps[-1]
    )


def _timed(step: Step, work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    _wait(step.program.device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Dissector:
    """Context that times the operators of one step of `watch()` and attributes them to modules.

    With `keep` it also keeps each operator, whose memory is not known here.
    """

    def __init__(self, step: Step, *, keep: bool = False) -> None:
        self.step = step
        self._open = ExitStack()
        self._owners = Owners()
        self._clock = _OperatorClock(step.program.device, self._owners, keep)

    def watch(self) -> Step:
        """Return the step to run, whose update is marked."""
        return replace(self.step, program=replace(self.step.program, update=self._update))

    def parts(self) -> tuple[Part, ...]:
        """Return the recorded parts in the order of first execution."""
        return tuple(
            Part(module=module, phase=phase, operation_class=kind, **vars(tally))
            for (module, phase, kind), tally in self._clock.tallies.items()
        )

    def operators(self) -> tuple[Operator, ...]:
        """Return the operators in their order, with times since the first one; none unless they are kept."""
        kept = self._clock.kept
        return tuple(
            one.model_copy(update={"begin_seconds": one.begin_seconds - kept[0].begin_seconds}) for one in kept
        )

    def __enter__(self) -> "Dissector":
        hooks = (register_optimizer_step_pre_hook(self._begin), register_optimizer_step_post_hook(self._end))
        for handle in (*hooks, *self._owners.follow(self.step.parts)):
            self._open.callback(handle.remove)
        self._open.enter_context(self._clock)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def _update(self, step: Step) -> torch.Tensor:
        self._begin()  # the rest of the step, its figures, belongs to it
        return self.step.program.update(step)

    def _begin(self, *_: Any) -> None:
        self._owners.updating += 1

    def _end(self, *_: Any) -> None:
        self._owners.updating -= 1


@dataclass
class _Tally:
    """Sums over the operators of one module, phase and class."""

    count: int = 0
    seconds: float = 0.0
    flops: int = 0
    bytes: int = 0


class _OperatorClock(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Times each operator and adds it to the tally of its module, phase and class."""

    def __init__(self, device: torch.device, owners: Owners, keep: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tallies: dict[_Key, _Tally] = {}
        self.kept: list[Operator] = []
        self._device, self._owners, self._keep = device, owners, keep

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        module, phase = self._owners.now()
        start = time.perf_counter()
        result = func(*args, **kwargs)
        _wait(self._device)
        seconds = time.perf_counter() - start
        arguments, results = operations.tensors_in(*args, *kwargs.values()), operations.tensors_in(result)
        view = operations.is_view(func, arguments, results)
        kind = operations.class_of(func, view=view)
        tally = self.tallies.setdefault((module, phase, kind), _Tally())
        tally.count += 1
        tally.seconds += seconds
        moved = 0 if view else operations.bytes_of(func, [*arguments, *results])
        flops = operations.flops_of(func, args, kwargs, result) if kind == "contraction" else 0
        tally.bytes, tally.flops = tally.bytes + moved, tally.flops + flops
        if self._keep:
            self.kept.append(
                Operator(
                    name=operations.name_of(func),
                    module=module,
                    phase=phase,
                    operation_class=kind,
                    begin_seconds=start,
                    seconds=seconds,
                    flops=flops,
                    bytes=moved,
                )
            )
        return result


class _Sampled(StorageLedger):  # type: ignore[no-untyped-call]
    """Ledger that notes the bytes alive at the end of each operator.

    It has no hooks of saved tensors, because these add operators to the step.
    """

    def __init__(self, device_type: str) -> None:
        super().__init__(device_type)
        self.samples: list[int] = []

    def __enter__(self) -> "_Sampled":
        TorchDispatchMode.__enter__(self)  # type: ignore[no-untyped-call]
        return self

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        self.samples.append(self.alive_bytes)
        return result


def operators(step: Step, train: _Train, index: int) -> tuple[Operator, ...]:
    """Train one more step with `train(step, index)`, and return its operators in their order."""
    device = step.program.device
    ledger = _Sampled(device.type)
    with Dissector(step, keep=True) as dissector, ledger:
        ledger.begin(step.parts, {}, live_tensors(device))
        train(dissector.watch(), index)
    seen = zip(dissector.operators(), ledger.samples, strict=True)
    return tuple(one.model_copy(update={"alive_bytes": alive}) for one, alive in seen)


def memory_snapshot(step: Step, train: _Train, index: int, path: Path) -> None:
    """Train one more step, and write CUDA's history of allocations with stacks, for pytorch.org/memory_viz.

    The device must be a CUDA one: no other allocator keeps a history. Raises `StorageError` if the disk refuses.
    """
    torch.cuda.memory._record_memory_history(max_entries=MOST_EVENTS)
    try:
        train(step, index)
        torch.cuda.synchronize(step.program.device)
        with storage_errors(path):
            torch.cuda.memory._dump_snapshot(str(path))  # type: ignore[no-untyped-call]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
