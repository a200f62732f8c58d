"""The kind `isoflop`: its rows, its file, what it refuses, and the steps that runs of one size share."""

import math
from pathlib import Path

import pytest

from assay.config import TrainingConfig
from assay.errors import UsageError
from assay.records.study import BASELINE
from assay.studies.kinds.isoflop import Isoflop, SharedSteps
from assay.studies.reading import read_study
from assay.training.learning_rate import schedule
from support.scaled import BRANCHED, STUDY, base

FILE = """
kind: isoflop
base: demo
runs: {1e10: [16, 32], 4e10: [16, 32, 48]}
held_out: {flops: 4e11, width: 64}
check_rate_at: 1e10
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "law.yaml"
    path.write_text(FILE)
    return path


def test_a_file_has_the_control_the_held_out_run_and_the_longest_runs_first(file: Path) -> None:
    study = read_study(file)
    assert isinstance(study, Isoflop)
    assert [row.label for row in study.rows(base())] == [
        BASELINE,
        "4e11 FLOPs, width 64",
        "4e10 FLOPs, width 48",
        "4e10 FLOPs, width 32",
        "4e10 FLOPs, width 16",
        "1e10 FLOPs, width 32",
        "1e10 FLOPs, width 32, 1/2 × rate",
        "1e10 FLOPs, width 32, 2 × rate",
        "1e10 FLOPs, width 16, 1/2 × rate",
        "1e10 FLOPs, width 16, 2 × rate",
    ]


def test_the_learning_rate_falls_with_the_width_and_the_steps() -> None:
    rule = base().training
    for row in STUDY.rows(base()):
        chosen = row.run.training
        of_width = (row.run.model.n_embd / base().model.n_embd) ** -0.6
        factor = {"1": 1.0, "1/2": 0.5, "2": 2.0}[row.levels["rate"]]
        rate = factor * rule.learning_rate * of_width * (chosen.steps / rule.steps) ** -0.35
        assert chosen.learning_rate == pytest.approx(rate, rel=1e-3)
        assert chosen.min_learning_rate / chosen.learning_rate == pytest.approx(
            rule.min_learning_rate / rule.learning_rate, rel=1e-3
        )


def test_with_branches_a_width_has_one_rate_and_its_longest_run_keeps_the_checkpoints() -> None:
    rows = [row for row in BRANCHED.rows(base()) if row.levels["rate"] == "1" and row.levels["width"] == "16"]
    (rate,) = {row.run.training.learning_rate for row in rows}
    steps = sorted(row.run.training.steps for row in rows)
    middle = math.prod(steps) ** (1 / len(steps))
    rule = base().training.learning_rate * (16 / 64) ** -0.6 * (middle / 100) ** -0.35
    assert rate == pytest.approx(rule, rel=1e-3)
    assert {row.run.training.schedule for row in BRANCHED.rows(base())} == {"wsd"}
    kept = {row.run.training.steps: row.run.training.keep_steps for row in rows}
    assert kept.pop(steps[-1]) == tuple(one - round(0.2 * one) for one in steps[:-1])
    assert not any(kept.values())


def test_branches_belong_to_the_trunk_of_their_width_and_seed() -> None:
    cells = BRANCHED.model_copy(update={"seeds": 2}).cells(base())
    named = {cell.name: cell for cell in cells}
    branched = [cell for cell in cells if cell.branch is not None]
    assert len(branched) == 2 * 5 * 5
    for cell in branched:
        assert cell.branch is not None
        trunk = named[cell.branch.cell]
        assert (trunk.levels["width"], trunk.seed) == (cell.levels["width"], cell.seed)
        assert cell.branch.step in trunk.run.training.keep_steps
        own, its = schedule(cell.run.training), schedule(trunk.run.training)
        assert [own(step) for step in range(cell.branch.step)] == [its(step) for step in range(cell.branch.step)]
        assert cell.branch.seconds == (0.5 * cell.branch.step if cell.levels["width"] == "16" else None)
    whole = [cell for cell in cells if cell.branch is None]
    assert {cell.levels["rate"] for cell in whole} == {"1", "1/2", "2"}
    assert not any(cell.run.training.keep_steps for cell in whole if cell.levels["rate"] != "1")


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("flops: 4e11", "flops: 3e11", "at least ten times the largest budget, 4e"),
        ("check_rate_at: 1e10", "check_rate_at: 2e10", "check_rate_at is 2e10, which is no budget"),
        ("1e10: [16, 32]", "much: [16]", "has the budget 'much'; write FLOPs"),
        ("1e10: [16, 32]", "1e10: [16, 16]", "a list of widths, each of them once"),
        ("base: demo", "constant: {quantity: tokens}", "constant is not possible here"),
    ],
)
def test_a_faulty_file_is_one_sentence(file: Path, before: str, after: str, says: str) -> None:
    file.write_text(FILE.replace(before, after))
    with pytest.raises(UsageError, match=says):
        read_study(file)


def test_a_budget_of_less_than_a_step_is_refused(file: Path) -> None:
    file.write_text(FILE.replace("1e10: [16, 32]", "1e3: [16, 32]").replace("check_rate_at: 1e10", ""))
    with pytest.raises(UsageError, match="1e3 FLOPs are less than one step of the width 16"):
        read_study(file).rows(base())


BASE = TrainingConfig(steps=100, warmup_steps=5)
LENGTHS = (100, 210, 400)
SHARED = SharedSteps(BASE, LENGTHS)


def settled(steps: int) -> TrainingConfig:
    settings = {key.partition(".")[2]: value for key, value in SHARED.settings(steps, whole=False).items()}
    return BASE.model_copy(update={**settings, "steps": steps})


def test_rates_are_those_of_the_trunk_until_a_fifth_of_the_steps_is_left() -> None:
    trunk = schedule(settled(400))
    assert [SHARED.branch_step(one) for one in LENGTHS] == [80, 168, 0]
    for steps in LENGTHS[:2]:
        own, at = schedule(settled(steps)), SHARED.branch_step(steps)
        assert [own(step) for step in range(at)] == [trunk(step) for step in range(at)]
        assert own(at + 1) < trunk(at + 1)


def test_the_longest_keeps_what_the_others_begin_with_unless_it_is_whole() -> None:
    assert [list(settled(one).keep_steps) for one in LENGTHS] == [[], [], [80, 168]]
    assert SHARED.settings(400, whole=True)["training.keep_steps"] == []


def test_the_warm_up_is_that_of_the_shortest_and_the_rate_that_of_the_middle() -> None:
    assert SHARED.warmup == 5
    assert SHARED.middle == pytest.approx((100 * 210 * 400) ** (1 / 3))
    assert SharedSteps(BASE, (210,)).middle == 210


def test_two_equal_lengths_and_very_short_ones_have_no_branch() -> None:
    assert SharedSteps(BASE, (400, 400)).branch_step(400) == 0
    assert SharedSteps(BASE.model_copy(update={"warmup_steps": 0}), (1, 400)).branch_step(1) == 0
