"""Measure a training step of a user's own: any function that trains its model once when it is called.

The order is: first step, warm-up, timed blocks, traced step, ledger, memory pass, anatomy. No timed step is watched,
and no watched step is the first, which makes the optimizer's state. Each step trains the model, so the caller's weights
move by as many steps as the record says.

In the caller's own process the peak of the process is not measured: it holds whatever the caller had before. The heap
is not counted there either, because memray replaces the functions of memory under other threads of the caller. A
process that does nothing else (`alone`) measures both.

The first step makes the optimizer's state, and the next ones still fill caches and compile. They are timed apart.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from assay.errors import UsageError
from assay.instruments import operations
from assay.instruments.dissection import taken_apart
from assay.instruments.memory.memory_pass import MemoryPass, live_tensor_bytes, live_tensors, memory_pass
from assay.instruments.memory.resident_memory import read, reset_peak, trim
from assay.instruments.memory.storage_ledger import Peak, StorageLedger, owners_of
from assay.instruments.memory.tensor_peak import tensor_peak
from assay.instruments.rates import machine_load
from assay.instruments.step_trace import StepTracer
from assay.own.adapted import BY_HAND, Found, compiled_frames, finding, is_compiled, step_of
from assay.records.anatomy import Anatomy
from assay.records.own import OwnProgram, OwnStep
from assay.records.prediction import Memory
from assay.records.timing import Block, Quartiles
from assay.records.trace import Trace
from assay.step.program import Step


def loss_of(returned: Any) -> float | None:
    """Return a number, a tensor of one element, or a pair (sum, count) as a mean loss; None for anything else."""
    targets = targets_of(returned)
    if targets is not None:
        return _number(returned[0]) / targets  # type: ignore[operator]
    return _number(returned)


def targets_of(returned: Any) -> int | None:
    """Return the count of a pair (sum, count), a whole number of at least one; None for anything else."""
    if not isinstance(returned, tuple | list) or len(returned) != 2 or _number(returned[0]) is None:
        return None
    count = _number(returned[1])
    return None if count is None or count < 1 or not count.is_integer() else int(count)


def _number(one: Any) -> float | None:
    if isinstance(one, Tensor) and one.numel() == 1:
        return float(one.detach())
    return float(one) if isinstance(one, int | float) and not isinstance(one, bool) else None


_BLOCK_SECONDS, _FEWEST, _MOST = 0.2, 2, 20
"""Aim and limits of a block: its seconds, and its number of steps."""


def time_step(step: Callable[[], object]) -> float:
    """Do one step, and return its seconds until each device has finished it."""
    start = time.perf_counter()
    step()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    return time.perf_counter() - start


def steps_of_a_block(seconds: float) -> int:
    """Number of steps of a block, if a step takes so many seconds."""
    return max(_FEWEST, min(_MOST, round(_BLOCK_SECONDS / max(seconds, 1e-9))))


def timed_block(step: Callable[[], float], steps: int, tokens: int) -> tuple[Block, list[float]]:
    """Do one block of steps, each of which returns its seconds, and return it with these seconds."""
    before = machine_load.read()
    seconds = [step() for _ in range(steps)]
    after = machine_load.read()
    around = machine_load.during([(before, after)], [after.own_seconds - before.own_seconds])
    median = statistics.median(seconds)
    block = Block(
        steps=steps, seconds=sum(seconds), median_step_seconds=median, tokens=steps * tokens, **asdict(around)
    )
    return block, seconds


WARMUP_STEPS, BLOCKS = 2, 5
"""Untimed steps after the first, and timed blocks."""
_APART_STEPS, _PATIENCE = 3, 4
"""Steps that are taken apart; first steps within which an optimizer must step."""
_CALLERS = "name the step as module:function, which measures it in a process of its own"


@dataclass
class OwnMeasurement:
    """A step that is measured, with what is known of it."""

    call: Callable[[], Any]
    """Trains once."""
    found: Found
    alone: bool = False
    """True in a process that does nothing else."""
    steps: int = 0
    returned: Any = None
    """Result of the last step. It is read after the step, so that the read is not counted as the step's."""
    process_peak_bytes: int | None = None
    compiled: bool = False
    """True if `torch.compile` made a module of it, or compiled a function in its first steps."""
    counted: list[int] = field(default_factory=list)
    """Targets that each timed step's loss counted, if it says so."""

    def one_step(self) -> None:
        """Do one step."""
        self.returned = None
        self.steps += 1
        self.returned = self.call()

    @property
    def loss(self) -> float | None:
        """Mean loss that the last step returned: a number, a tensor of one element, or (sum, count); else None."""
        return loss_of(self.returned)

    @property
    def device(self) -> torch.device:
        """Device of the first parameter; the CPU if there is none."""
        parameters = (one for module in self.found.modules for one in module.parameters())
        return next((one.device for one in parameters), torch.device("cpu"))

    def first(self) -> tuple[float, float | None]:
        """Do the first steps, until an optimizer steps; return the seconds and the loss of the very first one.

        Raises `UsageError` if none does and the step changes no weight by itself, or if no module was called.
        """
        frames = compiled_frames()
        with finding() as seen:
            seconds, loss = time_step(self.one_step), self.loss
            while not seen.optimizers and self.steps < _PATIENCE:
                self.one_step()
        self.found.modules = self.found.modules or seen.modules
        self.found.optimizers = self.found.optimizers or seen.optimizers
        self.compiled = compiled_frames() > frames or is_compiled(self.found.modules)
        calls = self.steps
        if not seen.optimizers and not self._updates_by_hand():
            raise UsageError(
                f"no optimizer of torch made a step in {calls} calls, and no weight changed; give a function that does "
                "one whole training step, with its update"
            )
        if not self.found.modules:
            raise UsageError("the step called no module with parameters; give its model as model=…")
        return seconds, loss

    def warm_up(self) -> list[float]:
        """Do untimed steps, and return the seconds of each. Raises `UsageError` if one makes no update."""
        seconds = []
        for _ in range(WARMUP_STEPS):
            with finding() as seen:
                seconds.append(time_step(self.one_step))
            if self.found.optimizers and not seen.optimizers:
                raise UsageError(self._no_update())
        return seconds

    def _no_update(self) -> str:
        return (
            f"call {self.steps} of the step made no update, and an earlier one did; give a function that does one "
            "whole training step, with all its micro-batches and its update"
        )

    def _updates_by_hand(self) -> bool:
        """Do a step and return whether it changed a weight."""
        before = [one.detach().clone() for module in self.found.modules for one in module.parameters()]
        self.one_step()
        after = (one.detach() for module in self.found.modules for one in module.parameters())
        return any(not torch.equal(was, now) for was, now in zip(before, after, strict=True))

    def blocks(self, count: int, steps: int, tokens: int | None) -> list[tuple[Block, list[float]]]:
        """Do timed blocks of so many steps, each of `tokens`, or of as many as its loss counts.

        In a process of its own, a step before each block measures the process.
        """
        done = []
        for _ in range(count):
            if self.alone:
                self._measure_process()
            before = len(self.counted)
            block, seconds = timed_block(self._timed_step, steps, tokens or 0)
            if tokens is None:
                block = block.model_copy(update={"tokens": sum(self.counted[before:])})
            done.append((block, seconds))
        return done

    def _timed_step(self) -> float:
        seconds = time_step(self.one_step)
        if (targets := targets_of(self.returned)) is not None:
            self.counted.append(targets)
        return seconds

    def _measure_process(self) -> None:
        """Do one step from trimmed memory, as the settling step of a run, and keep the highest peak."""
        trim()
        if reset_peak():
            self.one_step()
            if (now := read()) is not None:
                self.process_peak_bytes = max(self.process_peak_bytes or 0, now.held_peak_bytes)

    def trace(self, step: Step) -> Trace:
        """Trace one step."""
        with StepTracer(step, whole=True) as tracer:
            self.one_step()
        if not tracer.complete:
            raise UsageError(self._no_update())
        return tracer.trace(math.nan if self.loss is None else self.loss, targets=0)

    def parts(self, step: Step) -> Peak:
        """Return the parts of the peak of one step."""
        self.returned = None
        state = operations.tensors_in(list(step.optimizer.state.values()))
        with StorageLedger(self.device.type) as ledger:
            ledger.begin(step.parts, owners_of(step.parts, state), live_tensors(self.device))
            self.one_step()
        return ledger.peak()

    def memory(self) -> MemoryPass:
        """Measure the memory of one step.

        A step before it goes under the same profiler, which must see a tensor made to know its size when it is freed.
        So what a step keeps until the next one is counted right. What the step returned is the caller's, and dropped.
        """
        if self.device.type == "cpu":
            tensor_peak(self.one_step, "cpu")
        self.returned = None
        return memory_pass(self.device, self.one_step, live_tensor_bytes(self.device), heap=self.alone)

    def anatomy(self, step: Step, title: str, seconds: float) -> Anatomy:
        """Take some steps apart, of which an unwatched one takes so many seconds."""
        found = taken_apart(step, lambda *_: self.one_step(), range(_APART_STEPS), seconds)
        return found.model_copy(update={"title": title})


def measure_step(
    call: Callable[[], Any],
    modules: Sequence[nn.Module] = (),
    optimizers: Sequence[Optimizer] = (),
    *,
    title: str,
    tokens: int | None = None,
    blocks: int = BLOCKS,
    alone: bool = False,
) -> OwnStep:
    """Measure `call`, which trains once. Modules and optimizers are found in its first step unless they are given.

    `tokens` are those of a step, by default its loss's count. Raises `UsageError` if no optimizer or module is called.
    """
    measured = OwnMeasurement(call, Found(list(modules), list(optimizers)), alone)
    first_seconds, first_loss = measured.first()
    warm = measured.warm_up()
    timings = measured.blocks(blocks, steps_of_a_block(warm[-1]), tokens)
    quartiles = Quartiles.of([seconds for _, several in timings for seconds in several])
    if quartiles is None:
        raise UsageError(f"blocks={blocks} is not possible; give at least 1")
    step = step_of(measured.found.modules, measured.found.optimizers)
    trace, parts, memory = measured.trace(step), measured.parts(step), measured.memory()
    apart = None if measured.compiled else measured.anatomy(step, title, quartiles.median)
    peaks = {**vars(memory), "process_peak_bytes": measured.process_peak_bytes, "saved_bytes": trace.memory.saved_bytes}
    return OwnStep(
        program=_program(measured, step, title, tokens),
        steps=measured.steps,
        first_loss=first_loss,
        last_loss=measured.loss,
        first_step_seconds=first_seconds,
        step_seconds=quartiles,
        blocks=tuple(block for block, _ in timings),
        memory=Memory.model_validate(peaks),
        peak_parts=parts.parts,
        held=trace.memory,
        anatomy=apart,
        missing=dict(_missing(measured)),
        **{name: getattr(trace, name) for name in ("forwards", "operations", "synchronizations")},
    )


def _program(measured: OwnMeasurement, step: Step, title: str, tokens: int | None) -> OwnProgram:
    distinct = {id(one): one.numel() for _, one in step.named_parameters()}
    return OwnProgram(
        title=title,
        device=str(measured.device),
        torch=str(torch.__version__),
        threads=torch.get_num_threads(),
        parameters=sum(distinct.values()),
        modules=tuple(type(one).__name__ for one in measured.found.modules),
        optimizers=tuple(type(one).__name__ for one in measured.found.optimizers) or (BY_HAND,),
        tokens=tokens or (round(statistics.mean(measured.counted)) if measured.counted else None),
    )


def _missing(measured: OwnMeasurement) -> Iterator[tuple[str, str]]:
    """Yield the figures that were not measured, each with the reason."""
    if not measured.alone:
        yield "process_peak_bytes", f"this process holds what its caller had before; {_CALLERS}"
        yield "heap_peak_bytes", f"memray replaces functions of memory that threads of the caller may use; {_CALLERS}"
    if measured.device.type == "cpu":
        yield "reserved_peak_bytes", "torch reserves no memory on a CPU"
    if measured.compiled:
        yield "anatomy", "compiled code has no single operators to time"
        yield "operators inside compiled code", "only those are seen that compiled code calls from outside of its loops"
    if measured.loss is None:
        yield "last_loss", "the step returned no number"
