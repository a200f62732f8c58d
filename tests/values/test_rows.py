"""Rows of steps against the slow rule: honest sources pass on every share, and others are named."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from assay.data import Prepared
from assay.optimizations import resolved
from assay.step.program import MicroBatch, Share
from assay.values.rows import StepRows
from support.random_data import RandomData
from support.runs import tiny
from support.steps import build_step

STEPS = range(6)


def faults(optimizations: str, share: Share = (0, 1), change: dict[int, int] | None = None) -> list[str]:
    """What is said of each step; `change` has steps that train the rows of another."""
    asked = tiny({"batch_size": 8}).asked().model_copy(update={"optimizations": ()})
    run = resolved(type(asked).model_validate({**asked.model_dump(), "optimizations": optimizations}))
    data = RandomData(run)
    step, other = build_step(run, data), change or {}
    inner = step.program.batches

    def batches(index: int, share: Share) -> Sequence[MicroBatch]:
        return inner(other.get(index, index), share)

    rows = StepRows(run, cast(Prepared, data))
    watched = rows.watched(replace(step, program=replace(step.program, batches=batches)))
    said = []
    for index in STEPS:
        assert len(watched.program.batches(index, share)) == 1
        said.append(rows.fault(index))
    assert rows.held == len(STEPS)
    return said


@pytest.mark.parametrize("share", [(0, 1), (0, 2), (1, 2), (3, 4)])
@pytest.mark.parametrize("optimizations", ["", "smaller_batch", "gradient_accumulation:micro_batches=2"])
def test_honest_rows_of_every_share_pass(share: Share, optimizations: str) -> None:
    assert faults(optimizations, share) == [""] * len(STEPS)


@pytest.mark.parametrize("share", [(0, 1), (1, 2)])
def test_a_step_that_trains_again_is_named(share: Share) -> None:
    said = faults("", share, {2: 1, 5: 0, 4: 9})
    assert said[0] == said[1] == said[3] == ""
    assert said[2] == "step 2 trained on the rows of step 1 again"
    assert said[5] == "step 5 trained on the rows of step 0 again"
    assert said[4] == "the rows of step 4 are not those that seed 0 selects"


def test_a_step_whose_rows_nobody_took_is_not_held() -> None:
    run = tiny()
    rows = StepRows(run, cast(Prepared, RandomData(run)))
    assert rows.fault(0) == ""
    assert rows.held == 0


def test_a_stream_must_go_on_where_it_ended(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(" ".join(str(number * number) for number in range(600)))
    asked = tiny().asked()
    with_stream = {**asked.model_dump(), "optimizations": f"streaming:path={tmp_path}"}
    run = resolved(type(asked).model_validate(with_stream))
    rows, step = StepRows(run, cast(Prepared, RandomData(run))), build_step(tiny())
    texts = texts_of_steps(step.program.batches)
    source = {0: texts[0], 1: texts[0]}
    watched = rows.watched(replace(step, program=replace(step.program, batches=lambda index, _: source[index])))
    watched.program.batches(0, (0, 1))
    assert rows.fault(0) == ""
    watched.program.batches(1, (0, 1))
    assert rows.fault(1) == "the rows of step 1 do not begin where those of step 0 ended"


def texts_of_steps(batches: object) -> list[list[MicroBatch]]:
    return [list(batches(index, (0, 1))) for index in range(2)]  # type: ignore[operator]
