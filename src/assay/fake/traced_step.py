"""The peak of a training step, from its program on fake tensors: they have shapes, and neither values nor memory.

The step is built and taken under torch's fake mode. A ledger of storages (`instruments.memory.storage_ledger`) counts a
later one, in which the optimizer's state exists. So a model of any size is traced in seconds, and any model is, also
one that the estimator's arithmetic does not know.

Caveats: a value that the host reads to decide something stops the trace (`known_values`). A step whose shapes depend on
values, such as a mixture that sends tokens to experts, cannot be traced, and neither can compiled code. On a CPU the
ledger does not see what a kernel takes and frees inside one operator. Batches are left out there, because their memory
is not torch's.
"""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

from assay.absent.gpus import AbsentDevice, absent_device
from assay.config.run import ResolvedRun
from assay.errors import UsageError, first_line
from assay.fake.cuda import WORKSPACES, CudaLedger
from assay.fake.cuda_functions import add_kernels, as_if_real, stand_ins
from assay.fake.first_steps import FIRST, after_first_steps
from assay.fake.followed_step import follow_step
from assay.fake.known_values import HostTensors, Reported, TracedReads, place_of
from assay.fake.peak import GpuPeak
from assay.instruments import operations
from assay.instruments.memory.storage_ledger import StorageLedger, owners_of
from assay.own.adapted import is_compiled
from assay.records.own import TracedPeak
from assay.step.compiled import Captures
from assay.step.graphs import StepGraphs
from assay.step.program import BatchSource, MicroBatch, Program, Share, Step
from assay.training.queued_step import take

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def trace_on_cpu(run: ResolvedRun) -> TracedPeak:
    """Trace a step of a run's program on a CPU.

    Raises `UsageError` if a value decides something, if shapes depend on values, or if it compiles.
    """
    with _fake() as ledger:
        step = after_first_steps(run, CPU, partial(_traceable, ledger))
        _begin(ledger, step)
        take(step, FIRST)
        return _peak(ledger, step)


def run_peak(run: ResolvedRun, name: str) -> GpuPeak:
    """Trace a step of a run's program on a GPU that is not there, of this name. Raises as `trace_on_cpu`."""
    with fake_gpu(absent_device(name)) as ledger:
        step = after_first_steps(run, GPU, partial(_traceable, ledger))
        _begin(ledger, step)
        take(step, FIRST)
        return _found_on_gpu(ledger, name, run.training.batch_size, step)


def _traceable(ledger: StorageLedger, program: Program) -> Program:
    """Return a program whose rows do not count. Raises `UsageError` if it shows a trace no operators."""
    if program.witness(Captures) is not None or program.witness(StepGraphs) is not None:
        raise UsageError(
            "compiled code and replayed graphs show no operators to a trace; leave them out, or measure the step"
        )
    return replace(program, batches=partial(_rows, ledger, program.batches))


def step_peak(make: Callable[[], Callable[[], Any]], name: str, batch_size: int | None = None) -> GpuPeak:
    """Trace a step of a user's own on a GPU that is not there; `make` returns the function that trains once.

    Raises as `trace_on_cpu`, and if no optimizer steps.
    """
    with fake_gpu(absent_device(name)) as ledger:
        answer = partial(_found_on_gpu, ledger, name, batch_size)
        return follow_step(make(), partial(_begin_on_gpu, ledger), end=answer)


def _begin_on_gpu(ledger: CudaLedger, step: Step) -> None:
    """Count from here on. Raises `UsageError` for a step that takes nothing of a GPU, or shows no operators."""
    if is_compiled(step.parts):
        raise UsageError("compiled code shows no operators to a trace; run the step on an absent GPU (--absent)")
    if step.program.device.type != GPU.type:
        raise UsageError(
            f"the step's model is on the device {step.program.device.type}, so it takes nothing of a GPU; make "
            "model and batch on cuda"
        )
    _begin(ledger, step)


def _rows(ledger: StorageLedger, batches: BatchSource, index: int, share: Share) -> list[MicroBatch]:
    """Return a step's rows as fake tensors that do not count."""
    rows = [(ids.clone(), targets.clone()) for ids, targets in batches(index, share)]
    ledger.leave_out(one for pair in rows for one in pair)
    return rows


def _peak(ledger: StorageLedger, step: Step) -> TracedPeak:
    """Return the peak of the step that was counted."""
    peak = ledger.peak()
    return TracedPeak(
        parameters=parameters_of(step), peak_bytes=peak.nbytes, instant=peak.instant, parts=dict(peak.parts)
    )


def _found_on_gpu(ledger: CudaLedger, device: str, batch_size: int | None, step: Step) -> GpuPeak:
    """Return the peak of the step that was counted, with workspaces, and that of its tensors alone."""
    return counted_peak(ledger, step, device, batch_size, {"requested_peak_bytes": ledger.peak().nbytes})


def counted_peak(
    ledger: CudaLedger,
    step: Step,
    device: str,
    batch_size: int | None,
    allocator: Mapping[str, int],
    *,
    ran: bool = False,
) -> GpuPeak:
    """Return what a ledger has counted of a step. `allocator` has the bytes that torch's allocator would tell."""
    peak = ledger.peak()
    return GpuPeak(
        device=device,
        torch=str(torch.__version__),
        ran=ran,
        parameters=parameters_of(step),
        peak_bytes=ledger.peak(without=WORKSPACES).nbytes,
        instant=peak.instant,
        parts=dict(peak.parts),
        kernels=dict(ledger.kernels),
        unknown=tuple(ledger.unknown),
        batch_size=batch_size,
        **allocator,
    )


def _begin(ledger: StorageLedger, step: Step) -> None:
    """Count the step that follows."""
    gc.collect()
    state = list(operations.tensors_in(list(step.optimizer.state.values())))
    ledger.begin(step.parts, owners_of(step.parts, state))


def parameters_of(step: Step) -> int:
    """Return the number of elements of all distinct parameters."""
    return sum({id(one): one.numel() for _, one in step.named_parameters()}.values())


class FakeMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Fake mode that makes no real tensor on a device that it is told to be there."""

    avoid_device_init = True


@contextmanager
def _fake() -> Iterator[StorageLedger]:
    """Context in which tensors are fake and their storages are counted, those of the CPU."""
    modes = FakeMode(allow_non_fake_inputs=True), TracedReads()  # type: ignore[no-untyped-call]
    with as_if_real(), modes[0], modes[1], StorageLedger() as ledger, _blamed():
        yield ledger


@contextmanager
def fake_gpu(device: AbsentDevice) -> Iterator[CudaLedger]:
    """Context in which tensors on a GPU are fake and their storages are counted."""
    with ExitStack() as entered:
        entered.enter_context(stand_ins(device))
        entered.callback(lambda _: None, add_kernels(device.gpu))
        for mode in (FakeMode(allow_non_fake_inputs=True), HostTensors(), TracedReads(), Reported()):  # type: ignore[no-untyped-call]
            entered.enter_context(mode)
        ledger = entered.enter_context(CudaLedger(device))
        entered.enter_context(blame_line("run the step on an absent GPU (--absent)"))
        yield ledger


@contextmanager
def _blamed() -> Iterator[None]:
    """Context in which torch's error for a shape that depends on values is the user's."""
    try:
        yield
    except DynamicOutputShapeException as error:
        raise UsageError(
            f"the step cannot be traced: the shape of {error.func}'s result depends on values; measure it instead"
        ) from error


@contextmanager
def blame_line(remedy: str) -> Iterator[None]:
    """Context in which what torch cannot do on fake tensors is one sentence with its line and a remedy."""
    try:
        with _blamed():
            yield
    except (RuntimeError, NotImplementedError, AssertionError) as error:
        raise UsageError(
            f"{place_of(error)} cannot be traced: {type(error).__name__}: {first_line(error)}; {remedy}"
        ) from error
