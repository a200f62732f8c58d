"""Held-out windows against the slow rule, for splits, batches and lengths of any size."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from assay.config import ResolvedRun
from assay.data import Prepared
from assay.model.loss import NOT_COUNTED
from assay.step.program import MicroBatch, Step
from assay.training.batches import validation_batches
from assay.training.evaluation import Evaluation, evaluate
from assay.values.windows import EvaluatedWindows
from support.random_data import RandomData, RandomShard
from support.runs import tiny
from support.steps import build_step

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def step() -> Step:
    return build_step(tiny())


class Held:
    """Stands in for a prepared corpus with so many held-out tokens."""

    def __init__(self, tokens: int) -> None:
        self.validation = RandomShard(np.random.default_rng(tokens).integers(256, size=tokens).astype(np.uint16))


def counting(_: Step, batches: Iterable[MicroBatch]) -> tuple[float, int]:
    """An evaluation that only counts."""
    return 1.0, sum(int((targets != NOT_COUNTED).sum()) for _, targets in batches)


def held(run: ResolvedRun, data: Any, step: Step, seen: Any = counting) -> tuple[str, EvaluatedWindows]:
    """What is said of an evaluation by `seen`."""
    windows, sample = validation_batches(run, cast(Prepared, data), CPU)
    rule = EvaluatedWindows(run, cast(Prepared, data))
    watched = rule.watched(replace(step, program=replace(step.program, evaluate=seen)))
    return rule.fault(evaluate(watched, rule.begun(windows), 1.0, 8, sample)), rule


@given(tokens=st.integers(17, 700), batch_size=st.integers(1, 9), batches=st.sampled_from([None, 1, 2, 3, 7, 50]))
def test_honest_windows_pass(step: Step, tokens: int, batch_size: int, batches: int | None) -> None:
    run = tiny({"batch_size": batch_size, "eval_batches": batches})
    said, rule = held(run, Held(tokens), step)
    assert said == ""
    assert rule.held == 1


def test_an_evaluation_that_was_broken_off_does_not_count(step: Step) -> None:
    run = tiny({"eval_batches": 3})
    data = RandomData(run)
    windows, sample = validation_batches(run, cast(Prepared, data), CPU)
    rule = EvaluatedWindows(run, cast(Prepared, data))
    begun = rule.begun(windows)
    watched = rule.watched(replace(step, program=replace(step.program, evaluate=counting)))
    watched.program.evaluate(watched, [next(iter(begun()))])
    assert rule.fault(evaluate(watched, begun, 1.0, 8, sample)) == ""
    assert rule.fault(Evaluation(step=8, loss=1.0, targets=1, bytes_per_token=None)) != ""


@given(tokens=st.integers(40, 300), left_out=st.integers(0, 30))
def test_a_batch_that_is_left_out_is_said(step: Step, tokens: int, left_out: int) -> None:
    run = tiny({"batch_size": 2, "eval_batches": None})
    whole = -(-(tokens - 1) // 16)
    numbers = iter(range(1000))
    assume(left_out < -(-whole // 2))

    def lazy(step: Step, batches: Iterable[MicroBatch]) -> tuple[float, int]:
        return (1.0, 32) if next(numbers) == left_out else counting(step, batches)

    said, _ = held(run, Held(tokens), step, lazy)
    assert said.startswith("the evaluation after 8 steps ")
