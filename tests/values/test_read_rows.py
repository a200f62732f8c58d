"""Rows of steps against the slow rule: honest sources pass on every share, and others are named."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from assay.config import ResolvedRun
from assay.data import Batches, Prepared
from assay.model.loss import NOT_COUNTED
from assay.optimizations import resolve_run
from assay.step.program import MicroBatch, Share, Step
from assay.training.batches import validation_batches
from assay.training.evaluation import Evaluation, evaluate
from assay.values.read_rows import EvaluatedWindows, RowDigest, StepRows, texts_of_step
from support.random_data import RandomData, RandomShard
from support.runs import tiny
from support.steps import build_step

STEPS = range(6)


def faults(optimizations: str, share: Share = (0, 1), change: dict[int, int] | None = None) -> list[str]:
    """What is said of each step; `change` has steps that train the rows of another."""
    asked = tiny({"batch_size": 8}).asked().model_copy(update={"optimizations": ()})
    run = resolve_run(type(asked).model_validate({**asked.model_dump(), "optimizations": optimizations}))
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
    run = resolve_run(type(asked).model_validate(with_stream))
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


IDS = torch.arange(60).view(6, 10)
TARGETS = IDS + 1


def digest(*batches: tuple[torch.Tensor, torch.Tensor]) -> RowDigest:
    found = RowDigest()
    for ids, targets in batches:
        found.add(ids, targets)
    return found


def test_it_does_not_depend_on_how_rows_are_cut() -> None:
    whole = digest((IDS, TARGETS))
    for first, second in itertools.combinations(range(7), 2):
        pieces = [(IDS[start:stop], TARGETS[start:stop]) for start, stop in ((0, first), (first, second), (second, 6))]
        found = digest(*pieces)
        assert (found.value, found.rows) == (whole.value, 6)


def test_rows_of_a_slow_reference_have_the_same() -> None:
    found = RowDigest()
    for ids, targets in zip(IDS, TARGETS, strict=True):
        found.add_text(ids.numpy().tobytes(), targets.numpy().tobytes())
    assert found.value == digest((IDS, TARGETS)).value
    assert found.rows == 6


def test_any_other_token_or_order_has_another() -> None:
    changed = [IDS.clone() for _ in range(IDS.numel())]
    for at, one in enumerate(changed):
        one.view(-1)[at] += 1
    others = [(one, TARGETS) for one in changed] + [(IDS, one) for one in changed]
    others += [(IDS.flip(0), TARGETS.flip(0)), (TARGETS, IDS)]
    assert len({digest((IDS, TARGETS)).value, *(digest(one).value for one in others)}) == len(others) + 1


def test_the_bytes_are_those_of_the_rows_and_not_of_their_storage() -> None:
    assert digest((IDS.T.contiguous().T, TARGETS)).value == digest((IDS, TARGETS)).value


def test_rows_elsewhere_are_counted_and_not_read() -> None:
    found = digest((IDS.to("meta"), TARGETS.to("meta")))
    assert (found.rows, found.held) == (6, False)


class Called(TorchDispatchMode):
    """Notes the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators.append(func)
        return func(*args, **(kwargs or {}))


def test_no_operator_is_called_and_the_storage_stays_torchs() -> None:
    ids, targets = torch.zeros(4, 8, dtype=torch.int64), torch.ones(4, 8, dtype=torch.int64)
    with Called() as called:
        digest((ids, targets))
    assert called.operators == []
    assert ids.untyped_storage().resizable()


@pytest.mark.parametrize("seed", [0, 7, 2**63 - 1])
@pytest.mark.parametrize("divisor", [1, 2, 4])
def test_the_rows_are_those_that_are_trained(seed: int, divisor: int) -> None:
    run = tiny().model_copy(update={"seed": seed})
    data = RandomData(run)
    batches = Batches(data.train, seed, run.training.batch_size, run.model.context_length)  # type: ignore[arg-type]
    for step in (0, 1, 63, 10**6):
        texts = texts_of_step(step, run, cast(Prepared, data), divisor)
        ids, targets = batches.at(step, (0, divisor))
        assert np.array_equal([text[:-1] for text in texts], ids)
        assert np.array_equal([text[1:] for text in texts], targets)


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
