"""The peak of a training step, from its program on fake tensors: they have shapes, and neither values nor memory.

The program is built and takes two steps under torch's fake mode. A ledger of storages (`instruments.memory.ledger`)
counts the second one, in which the optimizer's state exists. So a model of any size is traced in seconds, and any model
is, also one that the estimator's arithmetic does not know.

Caveats: a value that the host reads is 1, or True. A step whose shapes depend on values, such as a mixture that sends
tokens to experts, cannot be traced, and neither can compiled code. The ledger does not see what a kernel takes and
frees inside one operator. Batches are left out: on a CPU their memory is not torch's.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from assay.config.run import ResolvedRun
from assay.data import open_prepared
from assay.data.random_tokens import write_random
from assay.errors import UsageError
from assay.instruments import operations
from assay.instruments.memory.ledger import StorageLedger, owners_of
from assay.model.own.part import batches_of, own_batches
from assay.optimizations import optimizations_of
from assay.records.own.traced import TracedPeak
from assay.step.compiled import Captures
from assay.step.graphs import StepGraphs
from assay.step.program import BatchSource, MicroBatch, Share, Step
from assay.training.build import baseline, build
from assay.training.queued_step import take

CPU = torch.device("cpu")
_TOKENS = 2**20
"""Random tokens that stand for the corpus."""


class _Values(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives 1 to a host that reads a fake tensor's value."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            return _one(args[0].dtype)
        return func(*args, **(kwargs or {}))


def _one(dtype: torch.dtype) -> float | int | bool:
    if dtype is torch.bool:
        return True
    return 1.0 if dtype.is_floating_point else 1


def trace_run(run: ResolvedRun) -> TracedPeak:
    """Trace a step of a run's program on a CPU. Raises `UsageError` if its shapes depend on values, or it compiles."""
    assert run.model.vocab_size is not None
    with tempfile.TemporaryDirectory(prefix="assay-trace-") as folder, ExitStack() as loading:
        data = open_prepared(write_random(Path(folder), run.model.vocab_size, _TOKENS))
        if run.model.own is not None:  # its weights are made at once, while the GPT's wait on the meta device
            loading.enter_context(_fake())
        program = baseline(run, data, CPU)
        loading.close()
        if batches_of(program.parts) is not None:  # the user's data must be real, or no function of it is
            program = replace(program, batches=_real(run))
        for one in optimizations_of(run):
            program = one.apply(program, run)
        if program.witness(Captures) is not None or program.witness(StepGraphs) is not None:
            raise UsageError(
                "compiled code and replayed graphs show no operators to a trace; leave them out, or measure the step"
            )
        with _fake() as ledger:
            step = build(replace(program, batches=partial(_rows, ledger, program.batches)))
            take(step, 0)
            return _traced(ledger, step)


def _real(run: ResolvedRun) -> BatchSource:
    """Return the rows of a user's own, made from data that have values, also while a step is traced."""
    own = own_batches(run)
    assert own is not None

    def batches(step: int, share: Share) -> list[MicroBatch]:
        with _disable_current_modes():
            return [own.at(step, share)]

    return batches


def _rows(ledger: StorageLedger, batches: BatchSource, index: int, share: Share) -> list[MicroBatch]:
    """Return a step's rows as fake tensors that do not count."""
    rows = [(ids.clone(), targets.clone()) for ids, targets in batches(index, share)]
    ledger.leave_out(one for pair in rows for one in pair)
    return rows


def _traced(ledger: StorageLedger, step: Step) -> TracedPeak:
    state = list(operations.tensors_in(list(step.optimizer.state.values())))
    ledger.begin(step.parts, owners_of(step.parts, state))
    take(step, 1)
    peak = ledger.peak()
    distinct = {id(one): one.numel() for _, one in step.named_parameters()}
    return TracedPeak(
        parameters=sum(distinct.values()), peak_bytes=peak.nbytes, instant=peak.instant, parts=dict(peak.parts)
    )


@contextmanager
def _fake() -> Iterator[StorageLedger]:
    """Context in which tensors are fake and their storages are counted."""
    with FakeTensorMode(allow_non_fake_inputs=True), _Values(), StorageLedger() as ledger:  # type: ignore[no-untyped-call]
        try:
            yield ledger
        except DynamicOutputShapeException as error:
            raise UsageError(
                f"the step cannot be traced: the shape of {error.func}'s result depends on values; measure it instead"
            ) from error
