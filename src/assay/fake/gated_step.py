"""Figures of a user's own step for a gate, found on fake tensors, and the blocks of each by their origin.

The peak is that of tensors alone. Workspaces of libraries are left out, because they differ between processors, and no
kernel runs. So the figures are equal on every machine. What CUDA's kernels take inside is that of the named GPU.

A storage has the path of its module, its operator, and the line that asked for it. One that backward made has the path
and the line of the forward operator to which the running node of autograd belongs.

Of compiled code the memory is that of the eager code, and graph breaks are counted. Compiled code shows no operators to
a ledger, and its memory hangs on the compiler. So `torch.compile` returns what it is given while a step is followed. To
count breaks, dynamo then captures the step anew with a backend that compiles nothing. Modes that only know values
declare themselves a part of the infrastructure, or dynamo would capture nothing.
"""

import gc
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode

from assay.absent.gpus import absent_device
from assay.errors import UsageError
from assay.fake.cuda import WORKSPACES
from assay.fake.cuda_functions import apply_anew, as_if_real
from assay.fake.followed_step import follow_step
from assay.fake.known_values import HostStep, Reported, StoppedTrace, TracedReads, UnreadNumber, asking_line
from assay.fake.traced_step import CPU, GPU, FakeMode, blame_line, fake_gpu
from assay.instruments import operations
from assay.instruments.memory.storage_ledger import Origin, StepObserver, StorageLedger, owners_of
from assay.instruments.memory.storages import identity, storages
from assay.instruments.step_counters import Synchronizations
from assay.records.gated import Figure, FigureBlock, StepFigures
from assay.records.trace import Phase
from assay.step.compiled import graph_breaks
from assay.step.program import Step

_Found = tuple[str, Origin, int]
"""Part of a figure, origin, and size of one block."""


def gated_step(make: Callable[[], Callable[[], Any]], device: str, folder: Path) -> StepFigures:
    """Trace a step on a CPU or on a GPU that is not there; `make` returns the function that trains once.

    Lines are named by their file below `folder`. Raises `UsageError` if no optimizer steps, if the step is on another
    device, or if a value decides something.
    """
    with _fake_cpu() if device == CPU.type else fake_gpu(absent_device(device)) as ledger:
        gate = _Gate(ledger, device, folder)
        with _Reports(gate):
            return follow_step(make(), gate.begin, end=gate.figures)


@contextmanager
def _fake_cpu() -> Iterator[StorageLedger]:
    """Context in which tensors on the CPU are fake and their storages are counted."""
    with ExitStack() as entered:
        entered.enter_context(as_if_real())
        for mode in (FakeMode(allow_non_fake_inputs=True), HostStep(), TracedReads(), Reported()):  # type: ignore[no-untyped-call]
            entered.enter_context(mode)
        ledger = entered.enter_context(StorageLedger(CPU.type))
        entered.enter_context(blame_line("measure the step instead (assay measure)"))
        yield ledger


class _Gate:
    """Counts one step of a ledger, and returns its figures."""

    def __init__(self, ledger: StorageLedger, device: str, folder: Path) -> None:
        self._ledger, self._device, self._folder = ledger, device, folder
        self.seen: _Seen | None = None
        """Notes of the step; None before it begins."""

    def begin(self, step: Step) -> None:
        """Count the step that follows. Raises `UsageError` if it is on another device."""
        _check(step, self._device)
        gc.collect()
        state = list(operations.tensors_in(list(step.optimizer.state.values())))
        self._ledger.begin(step.parts, owners_of(step.parts, state))
        self._ledger.name_origins(dict(_older(step)))
        self._ledger.observer = self.seen = _Seen(step, self._folder)

    def figures(self, _step: Step) -> StepFigures:
        """Return the figures of the step that was counted."""
        assert self.seen is not None
        return _figures(self._ledger, self.seen)


def _check(step: Step, device: str) -> None:
    """Raise `UsageError` if the step is on another device."""
    wanted, place = CPU if device == CPU.type else GPU, step.program.device
    if place.type != wanted.type:
        raise UsageError(
            f"the step's model is on the device {place.type}, and the gate is for {device}; make model and batch on "
            f"{wanted.type}"
        )


class _Seen(StepObserver):
    """Finds the origin of each storage, and notes FLOPs and waits of the host with theirs."""

    def __init__(self, step: Step, folder: Path) -> None:
        self._folder = folder
        self._forward: dict[int, Origin] = {}
        """Origin of each forward operator by the number of its node."""
        self._now = Origin()
        self._waits = Synchronizations(step)
        self.flops: list[_Found] = []
        self.waits: list[_Found] = []

    def origin(self, phase: Phase, operator: str, path: str) -> Origin:
        """Return module, operator and line of what is about to be made."""
        node = torch._C._current_autograd_node() if phase == "backward" else None
        if node is not None:
            forward = self._forward.get(node._sequence_nr(), Origin())
            self._now = Origin(forward.path, node.name().rstrip("0123456789").rpartition("::")[2], forward.line)
            return self._now
        self._now = Origin(path, operator, asking_line(self._folder))
        if phase == "forward":
            self._forward[torch.autograd._get_sequence_nr() - 1] = self._now  # type: ignore[attr-defined]
        return self._now

    def done(self, phase: Phase, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Note what an operator computes, and whether the host waits for it."""
        if isinstance(func, OpOverload):
            if flops := operations.flops_of(func, args, kwargs, result):
                self.flops.append((phase, self._now, flops))
            if operations.waits_for_device(func, args, kwargs, result):
                self.wait(phase, self._now, operations.tensors_in(*args, *kwargs.values(), result))

    def wait(self, phase: Phase, origin: Origin, tensors: list[torch.Tensor]) -> None:
        """Note that the host waits, unless the tensors would be in its memory on any device."""
        before = self._waits.counts.total()
        self._waits.note(phase, tensors)
        if self._waits.counts.total() > before:
            self.waits.append((phase, origin, 1))

    def report(self, tensor: torch.Tensor) -> None:
        """Note that a line of the user's own reads a number, for which no operator runs here."""
        self.wait("forward", Origin("", "Tensor.item", asking_line(self._folder)), [tensor])


class _Reports(TorchFunctionMode):
    """Reports reads of numbers that `Reported` answers."""

    def __init__(self, gate: _Gate) -> None:
        super().__init__()
        self._gate = gate

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, UnreadNumber) and self._gate.seen is not None:
            self._gate.seen.report(args[0])
        return made


def _older(step: Step) -> Iterator[tuple[int, Origin]]:
    """Yield the identity and the origin of storages that are older than the step."""
    named: dict[str, torch.Tensor] = dict(step.named_parameters())
    for part in step.parts:
        named.update({**dict(part.named_parameters()), **dict(part.named_buffers())})
    for name, one in named.items():
        for tensor in operations.tensors_in(one, one.grad, step.optimizer.state.get(one, {})):
            for storage in storages(tensor):
                yield identity(storage), Origin(name)


def _figures(ledger: StorageLedger, seen: _Seen) -> StepFigures:
    peak, held = ledger.peak(without=WORKSPACES), ledger.saved_peak()
    found: dict[Figure, Iterable[_Found]] = {
        "peak_bytes": [(part, one.origin, one.nbytes) for part, one in peak.alive],
        "saved_bytes": [(one.module, one.origin, one.nbytes) for one in held],
        "flops": seen.flops,
        "synchronizations": seen.waits,
    }
    return StepFigures(
        torch=str(torch.__version__).partition("+")[0],
        instant=peak.instant,
        parts=peak.parts,
        figures={name: sum(size for _, _, size in several) for name, several in found.items()},
        blocks={name: tuple(_blocks(several)) for name, several in found.items()},
    )


def _blocks(found: Iterable[_Found]) -> Iterator[FigureBlock]:
    """Yield what makes up a figure, with equal layers joined; the largest blocks are first."""
    sums: dict[tuple[str, str, str], tuple[int, int, str]] = {}
    for part, origin, size in found:
        key = part, re.sub(r"(^|(?<=\.))\d+(?=\.|$)", "*", origin.path), origin.operator
        count, whole, line = sums.get(key, (0, 0, origin.line))
        if size:
            sums[key] = count + 1, whole + size, line
    for (part, path, operator), (count, size, line) in sorted(sums.items(), key=lambda item: (-item[1][1], item[0])):
        yield FigureBlock(part=part, path=path, operator=operator, line=line, count=count, size=size)


_STEPS = 2
"""Steps after which all code has been captured."""


@contextmanager
def eager_code() -> Iterator[list[Any]]:
    """Context in which `torch.compile` compiles nothing. What it was given is added to the list."""
    given: list[Any] = []

    def kept(model: Any = None, **options: Any) -> Any:
        if model is None:
            return partial(kept, **options)
        given.append(model)
        return model

    with patch.object(torch, "compile", kept):
        yield given


def breaks_on_cpu(make: Callable[[], Callable[[], Any]]) -> int:
    """Return the number of graph breaks of a step; `make` returns the function that trains once."""
    compile_for_real = torch.compile

    def captured(model: Any = None, **options: Any) -> Any:
        left = {name: one for name, one in options.items() if name in ("fullgraph", "dynamic")}
        return partial(captured, **options) if model is None else compile_for_real(model, backend="eager", **left)

    with ExitStack() as entered:
        entered.enter_context(patch.object(torch, "compile", captured))
        entered.enter_context(patch.object(nn.Module, "_apply", apply_anew))
        for mode in (FakeMode(allow_non_fake_inputs=True), _Values(), _Reads()):  # type: ignore[no-untyped-call]
            entered.enter_context(mode)
        with suppress(StoppedTrace):  # a loss is read where the step ends
            call = make()
            for _ in range(_STEPS):
                call()
    return graph_breaks()


class _Values(HostStep):  # type: ignore[no-untyped-call]
    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return True, so that dynamo captures under this mode."""
        return True


class _Reads(TracedReads):  # type: ignore[no-untyped-call]
    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return True, so that dynamo captures under this mode."""
        return True
