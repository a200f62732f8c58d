"""Prefetching from pinned memory: what comes next is fetched, what does not is dropped, and a CPU has no use for it.

The copies themselves need a GPU (`tests/gpu/test_prefetch.py`); here another function stands in their place.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from assay.config import Run, Spec
from assay.cost import baseline
from assay.cost.kernels import CUDA
from assay.errors import UsageError
from assay.hardware import Accelerator, Machine
from assay.instruments.step_trace import StepTracer
from assay.optimizations import Unavailable, check, resolve
from assay.optimizations.pinned_prefetch.step import Prefetch, Rows
from assay.records.trace import Trace
from assay.step.program import Step
from assay.training.build import baseline as program_of
from assay.training.build import build
from assay.training.loop import train_step
from assay.training.stops import Unread
from support.random_data import RandomData
from support.runs import run_with
from support.steps import build_step, traced

PREFETCH = Spec(name="pinned_prefetch")
CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
GPU = Machine(processor="any", cores=2, memory_bytes=2**34, accelerators=(Accelerator(name="any", memory_bytes=2**36),))
ALONE = (0, 1)


class Copier:
    """Notes what is copied and what is used of it."""

    def __init__(self) -> None:
        self.begun = 0
        self.used = 0

    def __call__(self, rows: Rows) -> Callable[[], Rows]:
        self.begun += 1
        copied = [(ids.clone(), targets.clone()) for ids, targets in rows]

        def ready() -> Rows:
            self.used += 1
            return copied

        return ready


def prefetching(copier: Copier, run: Run) -> Step:
    program = program_of(run, RandomData(run), torch.device("cpu"))  # type: ignore[arg-type]
    batches = Prefetch(program, copier)
    witnesses = (batches.prepared,)
    return build(replace(program, batches=batches, finish_gradients=(batches.fetch_next,), witnesses=witnesses))


def test_it_trains_on_the_same_batches_and_fetches_each_but_the_first() -> None:
    copier = Copier()
    step, plain = prefetching(copier, run_with()), build_step(run_with())
    assert [train_step(step, index).loss for index in range(3)] == [train_step(plain, index).loss for index in range(3)]
    assert (copier.begun, copier.used) == (3, 2)


def test_a_step_that_is_not_the_next_is_read_and_what_was_fetched_is_dropped() -> None:
    copier = Copier()
    step, plain = prefetching(copier, run_with()), build_step(run_with()).program.batches
    for index, share, used in ((0, ALONE, 0), (0, ALONE, 0), (1, ALONE, 1), (5, ALONE, 1), (6, (1, 2), 1)):
        ((ids, _),), ((wanted, _),) = step.program.batches(index, share), plain(index, share)
        assert ids.equal(wanted)
        assert copier.used == used
        step.program.batches.fetch_next(step)  # type: ignore[attr-defined]


def test_a_batch_that_cannot_be_fetched_ahead_fails_in_the_step_that_wants_it() -> None:
    copier = Copier()
    step, plain = prefetching(copier, run_with()), build_step(run_with())
    batches = step.program.batches
    inner = batches._inner  # type: ignore[attr-defined]

    def broken(index: int, share: tuple[int, int]) -> object:
        if index == 1:
            raise UsageError("line 7 is not JSON")
        return inner(index, share)

    batches._inner = broken  # type: ignore[attr-defined]
    assert train_step(step, 0).loss == train_step(plain, 0).loss
    with pytest.raises(Unread, match="line 7 is not JSON"):
        train_step(step, 1)
    batches._inner = inner  # type: ignore[attr-defined]
    assert train_step(step, 1).loss == train_step(plain, 1).loss


def traced_twice(step: Step) -> Trace:
    train_step(step, 0)
    with StepTracer(step) as tracer:
        record = train_step(tracer.watch(), 1)
    return tracer.trace(record.loss, record.tokens)


def test_the_proof_counts_what_was_fetched_and_fails_without() -> None:
    fetched = resolve(PREFETCH).verify(traced_twice(prefetching(Copier(), run_with())), run_with())
    assert fetched.observed == "4 of 4 sequences copied to the device during the previous step"
    assert fetched.verdict
    plain = resolve(PREFETCH).verify(traced(run_with()), run_with())
    assert plain.observed.startswith("0 of 4 sequences")
    assert not plain.verdict


def test_both_proofs_stand_over_loader_workers() -> None:
    loader = Spec(name="loader_workers", fields={"workers": 1})
    inner = build_step(run_with(loader)).program
    batches = Prefetch(inner, Copier())
    run = run_with()
    program = program_of(run, RandomData(run), torch.device("cpu"))  # type: ignore[arg-type]
    changed = replace(
        program, batches=batches, finish_gradients=(batches.fetch_next,), witnesses=(*inner.witnesses, batches.prepared)
    )
    trace = traced_twice(build(changed))
    assert resolve(PREFETCH).verify(trace, run).verdict
    assert resolve(loader).verify(trace, run).verdict


def test_the_ledger_has_one_more_batch_on_the_device_and_one_beside_it() -> None:
    run = run_with()
    plain = baseline(run, CUDA)
    fetched = resolve(PREFETCH).predict(plain, run, GPU)
    assert fetched.held_bytes - plain.held_bytes == 16 * run.tokens_per_step
    assert fetched.batch.waiting * fetched.batch.nbytes == 16 * run.tokens_per_step


def test_a_cpu_is_told_why_not() -> None:
    with pytest.raises(Unavailable, match="a CPU needs no such copy; use a CUDA device"):
        check(run_with(PREFETCH), CPU)
    check(run_with(PREFETCH).model_copy(update={"device": "cuda"}), GPU)
