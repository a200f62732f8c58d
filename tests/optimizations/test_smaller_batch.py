"""A smaller batch: fewer tokens a step, each trained on as a run of that batch would, and none of it silent."""

import pytest

from assay.config import Run, Spec
from assay.estimator import estimate
from assay.hardware import Machine
from assay.optimizations import Conflict, check, resolve, resolve_run
from assay.training.loop import train_step
from support.runs import run_with, without
from support.steps import build_step, micro_batches, traced

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)


def smaller(factor: int) -> Spec:
    return Spec(name="smaller_batch", fields={"factor": factor})


def of_rows(rows: int) -> Run:
    run = run_with()
    return run.model_copy(update={"training": run.training.model_copy(update={"batch_size": rows})})


@pytest.mark.parametrize("factor", [2, 4])
def test_the_step_is_that_of_the_rows_left_in(factor: int) -> None:
    whole, left = build_step(run_with()), build_step(run_with(smaller(factor)))
    ((ids, targets),) = micro_batches(left, 3)
    ((all_ids, all_targets),) = micro_batches(whole, 3)
    assert ids.equal(all_ids[::factor])
    assert targets.equal(all_targets[::factor])


def test_ranks_share_the_rows_left_in_as_one_device_has_them() -> None:
    program = build_step(run_with(smaller(2))).program
    ((alone, _),) = program.batches(0, (0, 1))
    for rank in range(2):
        ((share, _),) = program.batches(0, (rank, 2))
        assert share.equal(alone[rank::2])


def test_the_tokens_of_a_step_are_counted_as_they_are() -> None:
    run = run_with(smaller(4))
    assert run.tokens_per_step == run_with().tokens_per_step // 4
    assert train_step(build_step(run), 0).tokens == run.tokens_per_step
    assert estimate(run, CPU).to_dict()["tokens_per_step"] == run.tokens_per_step
    assert resolve_run(resolve_run(run)) == run
    assert resolve_run(without(run)) == run_with()


def test_the_ledger_is_that_of_a_run_with_such_a_batch() -> None:
    small, plain = estimate(run_with(smaller(2)), CPU).to_dict(), estimate(of_rows(2), CPU).to_dict()
    assert small == plain


def test_the_proof_fails_where_all_rows_are_trained_on() -> None:
    run = run_with(smaller(2))
    evidence = resolve(smaller(2)).verify(traced(without(run)), run)
    assert evidence.observed == "64 of the batch's 64 tokens trained on in one step"
    assert not evidence.verdict


def test_it_is_proven_beside_accumulation_and_both_by_their_counts() -> None:
    run = run_with(smaller(2), Spec(name="gradient_accumulation", fields={"micro_batches": 2}))
    trace = traced(run)
    assert (trace.forwards, trace.batch.targets) == (2, run_with().tokens_per_step // 2)
    assert all(resolve(spec).verify(trace, run).verdict for spec in run.optimizations)


def test_a_batch_that_does_not_divide_is_refused() -> None:
    with pytest.raises(Conflict, match="batch_size=4 cannot be reduced to 1/3; choose a multiple of 3"):
        check(run_with(smaller(3)), CPU)
    run = run_with(smaller(2), Spec(name="gradient_accumulation", fields={"micro_batches": 4}))
    with pytest.raises(Conflict, match=r"batch_size=4 \(reduced to 2\) cannot be cut"):
        check(run, CPU)
