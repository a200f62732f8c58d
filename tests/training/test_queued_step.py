"""Steps whose figures are read late: the same figures, in order, complete whenever anything is due."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from assay.data import Prepared
from assay.errors import UsageError
from assay.parallel.process_rank import Ranks
from assay.step.program import Figures, MicroBatch, Share, Step
from assay.training import loop as loop_module
from assay.training.gradients import gradients
from assay.training.loop import Loop, read
from assay.training.queued_step import take
from assay.training.step_record import StepRecord
from assay.training.stops import BudgetReached, Diverged, Interrupted, Unread
from support.runs import tiny
from support.steps import Watcher, loop_of, step_of, weights


def told(loop: Loop) -> list[StepRecord]:
    assert isinstance(loop.observer, Watcher)
    return [replace(record, seconds=0.0, data_seconds=0.0) for record in loop.observer.records]


def counting(sizes: list[int]) -> Callable[[Tensor], list[list[float]]]:
    """A reading that notes of how many steps it is."""
    return lambda figures: (sizes.append(len(figures)), figures.tolist())[1]


@pytest.mark.parametrize("clip", [0.0, 0.3, 1e6], ids=["no clip", "clipped", "too small to clip"])
def test_records_and_weights_are_bit_equal_to_those_that_are_read_at_once(
    corpus: Prepared, tmp_path: Path, clip: float
) -> None:
    run = tiny({"steps": 7, "gradient_clip": clip, "eval_interval": 5})
    loops = []
    for every in (1, 3):
        step = step_of(run, corpus, figures=Figures(read_every=every))
        loops.append(loop_of(run, step, corpus, tmp_path))
        loops[-1].advance(7)
    there, here = loops
    assert told(here) == told(there)
    assert here.observer.evaluations == there.observer.evaluations  # type: ignore[attr-defined]
    assert replace(here.position, seconds=0.0) == replace(there.position, seconds=0.0)
    expected = weights(there.step)
    assert all(torch.equal(value, expected[name]) for name, value in weights(here.step).items())


def test_steps_are_read_together_and_before_whatever_is_due(corpus: Prepared, tmp_path: Path) -> None:
    def sizes(**due: int) -> list[int]:
        run, found = tiny({"steps": 10, **due}), []
        loop = loop_of(run, step_of(run, corpus, figures=Figures(counting(found), 4)), corpus, tmp_path)
        loop.advance(10)
        return found

    assert sizes() == [4, 4, 2]
    assert sizes(eval_interval=3) == [3, 3, 3, 1]
    assert sizes(checkpoint_interval=5) == [4, 1, 4, 1]


@pytest.mark.parametrize("error", [UsageError("line 7 is not JSON"), OSError(5, "Input/output error")])
@pytest.mark.parametrize("every", [1, 3])
def test_steps_before_one_that_cannot_be_read_stand(
    corpus: Prepared, tmp_path: Path, every: int, error: Exception
) -> None:
    run = tiny({"steps": 7})
    whole, broken = step_of(run, corpus), step_of(run, corpus, figures=Figures(read_every=every))

    def batches(index: int, share: Share) -> Sequence[MicroBatch]:
        if index == 4:
            raise error
        return whole.program.batches(index, share)

    broken = replace(broken, program=replace(broken.program, batches=batches))
    loop = loop_of(run, broken, corpus, tmp_path)
    with pytest.raises(Unread, match=re.escape(str(error))):
        loop.advance(7)
    assert [record.step for record in told(loop)] == [0, 1, 2, 3]
    assert loop.position.step == 4
    loop_of(run, whole, corpus, tmp_path).advance(4)
    expected = weights(whole)
    assert all(torch.equal(value, expected[name]) for name, value in weights(broken).items())


def test_a_rank_that_alone_cannot_read_saves_nothing(
    corpus: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def batches(index: int, share: Share) -> Sequence[MicroBatch]:
        raise UsageError("the hub is gone")

    loop = loop_of(tiny(), step_of(tiny(), corpus, batches=batches), corpus, tmp_path)
    monkeypatch.setattr(Ranks, "all_come", lambda self, place: False)
    with pytest.raises(UsageError, match="one rank alone cannot read step 0: the hub is gone"):
        loop.advance(7)


def test_the_time_of_reading_is_that_of_all_steps_read(corpus: Prepared) -> None:
    step = step_of(tiny(), corpus)
    taken = [take(step, index) for index in range(2)]
    waits = iter([0.5])

    def slow(figures: Tensor) -> list[list[float]]:
        time.sleep(next(waits))
        return figures.tolist()  # type: ignore[no-any-return]

    records = read(replace(step, program=replace(step.program, figures=Figures(slow))), taken)
    assert [record.seconds - one.seconds >= 0.25 for record, one in zip(records, taken, strict=True)] == [True, True]


@pytest.mark.parametrize(("device", "more"), [("cpu", 0.0), ("cuda", 2.0)])
def test_a_device_works_on_while_the_host_does_something_else_between_two_steps(
    corpus: Prepared, device: str, more: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "mark", lambda device: None)
    step = step_of(tiny(), corpus)
    first, second = (take(step, index) for index in range(2))
    later = replace(second, began=first.queued + 2.0, queued=first.queued + 3.0)
    there = replace(step, program=replace(step.program, device=torch.device(device)))
    seconds = sum(one.seconds for one in read(there, [first, later])) - first.seconds - second.seconds
    assert more <= seconds < more + 1.0


def test_a_budget_of_tokens_ends_after_the_step_that_reaches_it(corpus: Prepared, tmp_path: Path) -> None:
    run = tiny({"steps": 6, "tokens": 150})
    loop = loop_of(run, step_of(run, corpus, figures=Figures(read_every=10)), corpus, tmp_path)
    with pytest.raises(BudgetReached, match="150 tokens is reached after 3 steps"):
        loop.advance(6)
    assert len(told(loop)) == 3


def test_who_asks_to_stop_need_not_wait_until_figures_are_due(corpus: Prepared, tmp_path: Path) -> None:
    loop = loop_of(tiny(), step_of(tiny(), corpus, figures=Figures(read_every=5)), corpus, tmp_path)
    asked = iter([False, False, True, True])
    loop.observer.interrupted = lambda: next(asked)  # type: ignore[method-assign]
    with pytest.raises(Interrupted, match="after 2 steps"):
        loop.advance(6)
    assert [record.step for record in told(loop)] == [0, 1]


def test_a_step_that_is_not_finite_is_named_late_and_what_came_after_is_not_told(
    corpus: Prepared, tmp_path: Path
) -> None:
    calls = []

    def breaking(step: Step, micro_batches: Sequence[MicroBatch], tokens: int) -> Tensor:
        calls.append(gradients(step, micro_batches, tokens))
        if len(calls) == 2:
            grad = dict(step.named_parameters())["blocks.1.mlp.up.weight"].grad
            assert grad is not None
            grad[0, 0] = float("inf")
        return calls[-1]

    loop = loop_of(tiny(), step_of(tiny(), corpus, figures=Figures(read_every=4), gradients=breaking), corpus, tmp_path)
    with pytest.raises(Diverged, match=r"at step 1, read after step 3: by then the weight \S+ is the first tensor"):
        loop.advance(6)
    assert [record.finite for record in told(loop)] == [True, False]


class Event:
    """A time of the device, in milliseconds."""

    def __init__(self, at: float) -> None:
        self.at = at

    def elapsed_time(self, later: "Event") -> float:
        return later.at - self.at


def test_steps_that_are_read_together_share_the_time_of_the_device(
    corpus: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = step_of(tiny({"steps": 3}), corpus, figures=Figures(read_every=3))
    taken = [replace(take(step, index), begun=Event(100.0 * index)) for index in range(3)]  # type: ignore[arg-type]
    monkeypatch.setattr(loop_module, "mark", lambda device: Event(330.0))
    found = read(step, taken)
    assert [one.device_seconds for one in found] == [pytest.approx(0.11)] * 3
    assert [one.host_seconds for one in found] == [one.seconds for one in taken]
    monkeypatch.undo()
    on_cpu = read(step, [take(step, 3)])[0]
    assert (on_cpu.device_seconds, on_cpu.host_seconds) == (None, None)
