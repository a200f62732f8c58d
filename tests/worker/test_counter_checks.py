"""Counters of a run that lie, each in the real session: what the run says of them."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from assay.data import Prepared
from assay.instruments.memory.memory_pass import MemoryPass
from assay.records.run import RunResult
from assay.records.status import Status
from assay.step.program import Figures, MicroBatch, Program, Step
from assay.training.evaluation import EvaluationSample, Windows
from assay.training.step_record import Position, StepRecord
from assay.worker import build as worker_build
from assay.worker import ending
from assay.worker import session as worker_session
from support.runs import run_folder
from support.workers import ended

pytestmark = pytest.mark.usefixtures("forked")

Change = Callable[[Program], Program]
TRAINING = {"steps": 24, "eval_interval": 8}


@pytest.fixture
def lying(monkeypatch: pytest.MonkeyPatch) -> Callable[[Change], None]:
    """Exchange seams of the program that a session has built, as a technique could."""
    honest = worker_session.build_loop

    def exchange(change: Change) -> None:
        def build(*arguments: Any) -> worker_build.Built:
            built = honest(*arguments)
            built.loop.step = replace(built.loop.step, program=change(built.loop.step.program))
            return built

        monkeypatch.setattr(worker_session, "build_loop", build)

    return exchange


Lying = Callable[[Change], None]


def result_of(tmp_path: Path, corpus: Prepared, **training: object) -> RunResult:
    return ended(run_folder(tmp_path / "run", corpus, {**TRAINING, **training}))


def test_an_honest_run_says_what_was_held(corpus: Prepared, tmp_path: Path) -> None:
    result = result_of(tmp_path, corpus, measure_memory=True)
    assert result.status is Status.DONE, result.reason
    assert result.proof.counters == {"rows_of_steps": 24, "windows_of_evaluations": 3}
    assert all(block.between_seconds is not None and block.between_seconds >= 0 for block in result.blocks)


def at(step: int, change: Callable[[Tensor, Tensor], MicroBatch]) -> Change:
    """A batch source that changes the rows of one step."""

    def lie(program: Program) -> Program:
        def batches(index: int, share: tuple[int, int]) -> list[MicroBatch]:
            rows = list(program.batches(index, share))
            return [change(*one) for one in rows] if index == step else rows

        return replace(program, batches=batches)

    return lie


def test_a_step_of_fewer_tokens_than_it_should_have_is_wrong(lying: Lying, corpus: Prepared, tmp_path: Path) -> None:
    lying(at(11, lambda ids, targets: (ids[1:], targets[1:])))
    result = result_of(tmp_path, corpus)
    assert (result.status, result.steps) == (Status.WRONG_VALUES, 12)
    assert result.reason == "step 11 counted 48 tokens, and its batch has 64"


@pytest.mark.parametrize("earlier", [10, 3])
def test_a_step_that_trains_the_rows_of_an_earlier_one_is_wrong(
    lying: Lying, corpus: Prepared, tmp_path: Path, earlier: int
) -> None:
    def lie(program: Program) -> Program:
        return replace(program, batches=lambda index, share: program.batches(earlier if index == 11 else index, share))

    lying(lie)
    result = result_of(tmp_path, corpus)
    assert (result.status, result.steps) == (Status.WRONG_VALUES, 12)
    assert result.reason == f"step 11 trained on the rows of step {earlier} again"


@pytest.mark.parametrize(
    "change",
    [
        lambda ids, targets: (ids.flip(0), targets.flip(0)),
        lambda ids, targets: (ids, targets.roll(1, 1)),
        lambda ids, targets: (ids[[0, 0, 2, 3]], targets[[0, 0, 2, 3]]),
    ],
    ids=["another order", "other targets", "one row twice"],
)
def test_a_step_of_other_rows_is_wrong(
    lying: Lying, corpus: Prepared, tmp_path: Path, change: Callable[[Tensor, Tensor], MicroBatch]
) -> None:
    lying(at(11, change))
    result = result_of(tmp_path, corpus)
    assert (result.status, result.steps) == (Status.WRONG_VALUES, 12)
    assert result.reason is not None
    assert result.reason.startswith("the rows of step 11 are not those that seed ")


def test_tokens_that_do_not_sum_up_are_wrong(corpus: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Position.advance

    def generous(self: Position, record: StepRecord) -> None:
        honest(self, record)
        self.tokens += 1

    monkeypatch.setattr(Position, "advance", generous)
    result = result_of(tmp_path, corpus)
    assert result.status is Status.WRONG_VALUES
    assert result.reason == "24 steps of 64 tokens were counted as 1560"


@pytest.mark.parametrize("batches", [None, 3])
def test_an_evaluation_that_leaves_out_every_second_batch_is_wrong(
    lying: Lying, corpus: Prepared, tmp_path: Path, batches: int | None
) -> None:
    def lie(program: Program) -> Program:
        said: list[tuple[float, int]] = []

        def evaluate(step: Step, given: Iterable[MicroBatch]) -> tuple[float, int]:
            said.append(said[-1] if len(said) % 2 else program.evaluate(step, given))
            return said[-1]

        return replace(program, evaluate=evaluate)

    lying(lie)
    result = result_of(tmp_path, corpus, eval_batches=batches)
    assert (result.status, result.steps) == (Status.WRONG_VALUES, 8)
    windows = 12 if batches else -(-(len(corpus.validation) - 1) // 16)
    assert result.reason is not None
    assert result.reason.startswith("the evaluation after 8 steps read ")
    assert result.reason.endswith(f" windows of held-out text instead of {windows}")


@pytest.mark.parametrize("batches", [None, 3])
def test_an_evaluation_that_counts_other_targets_is_wrong(
    lying: Lying, corpus: Prepared, tmp_path: Path, batches: int | None
) -> None:
    def lie(program: Program) -> Program:
        def evaluate(step: Step, given: Iterable[MicroBatch]) -> tuple[float, int]:
            loss, targets = program.evaluate(step, given)
            return loss, 2 * targets

        return replace(program, evaluate=evaluate)

    lying(lie)
    result = result_of(tmp_path, corpus, eval_batches=batches)
    targets = 192 if batches else len(corpus.validation) - 1
    assert (result.status, result.steps) == (Status.WRONG_VALUES, 8)
    assert (
        result.reason == f"the evaluation after 8 steps counted {2 * targets} targets, and its windows have {targets}"
    )


@pytest.mark.parametrize("batches", [None, 3])
def test_an_evaluation_of_other_windows_is_wrong(
    corpus: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int | None
) -> None:
    honest = worker_build.validation_batches

    def first_twice(*arguments: Any) -> tuple[Windows, EvaluationSample]:
        windows, sample = honest(*arguments)

        def repeated() -> Iterator[MicroBatch]:
            first, _, *rest = windows()
            return iter([first, first, *rest])

        return repeated, sample

    monkeypatch.setattr(worker_build, "validation_batches", first_twice)
    result = result_of(tmp_path, corpus, eval_batches=batches)
    assert (result.status, result.steps) == (Status.WRONG_VALUES, 8)
    assert result.reason == "the evaluation after 8 steps read other windows than the rule of the split gives"


def test_a_peak_below_what_lives_together_is_wrong(
    corpus: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = ending.memory_pass

    def half(*arguments: Any, **options: Any) -> MemoryPass:
        found = honest(*arguments, **options)
        assert found.tensors_peak_bytes is not None
        return replace(found, tensors_peak_bytes=found.tensors_peak_bytes // 2)

    plain = result_of(tmp_path / "plain", corpus, measure_memory=True)
    assert plain.status is Status.DONE
    monkeypatch.setattr(ending, "memory_pass", half)
    result = result_of(tmp_path, corpus, measure_memory=True)
    assert result.status is Status.WRONG_VALUES
    assert result.reason is not None
    assert result.reason.startswith("the peak of tensors is ")
    assert ", and weights, optimizer state, and either gradients or what is saved for backward are " in result.reason


class Busy(Figures):
    """Figures that do work whenever somebody asks how many steps are read together, which is between two steps."""

    def __getattribute__(self, name: str) -> Any:
        if name == "read_every":
            time.sleep(0.02)
        return super().__getattribute__(name)


def test_work_between_two_steps_is_noted(lying: Lying, corpus: Prepared, tmp_path: Path) -> None:
    plain = result_of(tmp_path / "plain", corpus)
    lying(lambda program: replace(program, figures=Busy()))
    result = result_of(tmp_path, corpus)
    assert result.status is Status.DONE, result.reason
    for before, after in zip(plain.blocks, result.blocks, strict=True):
        assert before.between_seconds is not None
        assert after.between_seconds is not None
        assert after.between_seconds >= 0.02 * after.steps
    (note,) = [one for one in result.notes if "passed between" in one]
    assert note.endswith("the step time does not contain what was done there")
