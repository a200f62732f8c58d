"""Batches made by other processes: the same ones, in any order of asking, and proven to be made there."""

import gc
import multiprocessing
from collections.abc import Iterator
from multiprocessing.process import BaseProcess

import psutil
import pytest

from assay.config import Run, Spec
from assay.estimator import estimate
from assay.hardware import Machine
from assay.optimizations import Unavailable, check, resolve
from assay.optimizations.loader_workers.step import Workers
from assay.step.prepared import PreparedSequences
from assay.step.program import Step
from support.runs import run_with, without
from support.steps import build_step, losses, traced
from support.traces import altered

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
ALONE = (0, 1)


def loader(workers: int) -> Spec:
    return Spec(name="loader_workers", fields={"workers": workers})


@pytest.fixture(scope="module")
def loaded() -> Step:
    return build_step(run_with(loader(2)))


def prepared(loaded: Step) -> int:
    """Number of sequences prepared so far."""
    return sum(one.sequences for one in loaded.program.witnesses_of(PreparedSequences))


def same(loaded: Step, plain: Step, index: int, share: tuple[int, int] = ALONE) -> bool:
    (ids, targets), (wanted, aims) = (step.program.batches(index, share)[0] for step in (loaded, plain))
    return ids.equal(wanted) and targets.equal(aims)


def test_steps_are_the_same_in_order_again_and_after_a_leap_and_only_in_order_made_elsewhere(loaded: Step) -> None:
    plain, made = build_step(run_with()), []
    for index in (7, 8, 8, 9, 3, 10, 30, 31, 7, 32):
        before = prepared(loaded)
        assert same(loaded, plain, index), index
        made.append((index, prepared(loaded) - before))
    assert made == [(7, 4), (8, 4), (8, 0), (9, 4), (3, 0), (10, 4), (30, 4), (31, 4), (7, 0), (32, 4)]


def test_another_share_than_the_workers_is_read_directly(loaded: Step) -> None:
    plain = build_step(run_with())
    assert same(loaded, plain, 40)
    before = prepared(loaded)
    assert same(loaded, plain, 41, (1, 2))
    assert prepared(loaded) == before
    assert same(loaded, plain, 41)


def test_the_processes_end_with_the_step_that_they_work_for() -> None:
    before = set(psutil.Process().children())
    step = build_step(run_with(loader(2)))
    step.program.batches(0, ALONE)
    started = set(psutil.Process().children()) - before
    assert len(started) == 2
    del step
    assert not psutil.wait_procs(started, timeout=10)[1]


def test_a_step_that_is_collected_in_a_cycle_tells_its_workers_to_end() -> None:
    step = build_step(run_with(loader(2)))
    step.program.batches(0, ALONE)
    assert isinstance(step.program.batches, Workers)
    ended: list[bool] = []

    def watch(process: BaseProcess) -> None:
        join = process.join

        def joined(timeout: float | None = None) -> None:
            join(timeout)
            ended.append(not process.is_alive())

        process.join = joined  # type: ignore[method-assign]

    for process in step.program.batches._made._workers:  # type: ignore[attr-defined]
        watch(process)
    cycle: list[object] = [step]
    cycle.append(cycle)
    del step, process, cycle
    gc.collect()
    assert ended == [True, True]  # and nobody waited in vain


def test_the_batches_that_lie_ready_are_those_that_are_predicted(loaded: Step) -> None:
    assert isinstance(loaded.program.batches, Workers)
    loaded.program.batches(50, ALONE)
    iterator = loaded.program.batches._made
    ready = iterator._send_idx - iterator._rcvd_idx  # type: ignore[attr-defined]
    ((ids, targets),) = loaded.program.batches(51, ALONE)
    predicted = estimate(run_with(loader(2)), CPU).to_dict()["waiting_batch_bytes"]
    assert predicted == ready * (ids.nbytes + targets.nbytes) == 4 * 2 * 8 * 4 * 16
    assert estimate(run_with(), CPU).to_dict()["waiting_batch_bytes"] == 0


def test_no_number_of_the_run_s_is_drawn(loaded: Step) -> None:
    noisy = run_with().model_copy(update={"model": run_with().model.model_copy(update={"dropout": 0.2})})
    with_loader = noisy.model_copy(update={"optimizations": run_with(loader(1)).optimizations})
    assert losses(with_loader) == losses(noisy) != losses(run_with())


@pytest.mark.parametrize("beside", ["smaller_batch", "gradient_accumulation"])
def test_workers_make_the_batches_that_other_techniques_ask_for(beside: str) -> None:
    spec = resolve(
        Spec(name=beside, fields={"factor": 2} if beside == "smaller_batch" else {"micro_batches": 2})
    ).spec()
    run = run_with(loader(1), spec)
    assert losses(run) == losses(run_with(spec))
    evidence = resolve(loader(1)).verify(traced(run), run)
    assert evidence.verdict, evidence.observed


def proof(run: Run, **changes: object) -> tuple[str, bool]:
    evidence = resolve(loader(2)).verify(altered(traced(run), **{"data_seconds": 0.5, **changes}), run)
    return evidence.observed.partition(";")[0], evidence.verdict


def test_the_proof_fails_where_this_process_made_the_batch_or_a_part_of_it() -> None:
    run = run_with(loader(2))
    assert proof(run) == ("4 of 4 sequences prepared by another process", True)
    assert proof(run, prepared={"another process": 3}) == ("3 of 4 sequences prepared by another process", False)
    assert proof(without(run)) == ("0 of 4 sequences prepared by another process", False)


@pytest.mark.parametrize(("claimed", "really"), [(2, 1), (1, 2)])
def test_another_number_of_processes_is_refuted(claimed: int, really: int) -> None:
    evidence = resolve(loader(claimed)).verify(traced(run_with(loader(really))), run_with(loader(claimed)))
    assert f"{really} processes prepare batches instead of {claimed}" in evidence.observed
    assert not evidence.verdict


def test_a_loader_without_processes_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of torch's loader with `num_workers=0`, which makes its batches here."""
    import assay.optimizations.loader_workers.step as room

    def here(dataset: object, *, sampler: object, generator: object, **_: object) -> list[object]:
        class Here(list[object]):
            def __iter__(self) -> Iterator[object]:
                return (dataset[step] for step in sampler)  # type: ignore[index, attr-defined]

        return Here()

    monkeypatch.setattr(room, "DataLoader", here)
    assert proof(run_with(loader(2))) == ("0 of 4 sequences prepared by another process", False)


def test_a_system_that_cannot_fork_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    with pytest.raises(Unavailable, match="use Linux"):
        check(run_with(loader(2)), CPU)
