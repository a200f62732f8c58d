"""The time of a row before it runs."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.api.designs import plan
from assay.config import load
from assay.config.home import Home
from assay.errors import UsageError
from assay.hardware.detect import detect
from assay.hardware.rates import rates_file, with_rates
from assay.optimizations import resolve_run
from assay.report.kit.blocks import UNKNOWN, Table
from assay.report.studies import outlook_report
from assay.studies.execution.deadline import START_SECONDS, process_seconds
from assay.studies.kinds.factorial import Factorial
from assay.studies.outlook import Outlook, RowOutlook, outlook
from support.machines import MEASURED


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        (["eval_interval=0", "eval_batches=3"], 100 + 1),
        (["eval_interval=25", "eval_batches=3"], 100 + 5),
        (["eval_interval=0", "eval_batches=3", "tokens=3200"], 10 + 1),
        (["eval_interval=0", "eval_batches=3", "seconds=4"], 8 + 1),
    ],
)
def test_evaluations_and_budgets_count(changes: list[str], steps: float) -> None:
    shape = ["training.steps=100", "training.batch_size=4", "model.context_length=80"]
    run = resolve_run(load("demo", [*shape, *(f"training.{one}" for one in changes)]))
    assert process_seconds(run, 0.5, eval_batches=3) == pytest.approx(START_SECONDS + 0.5 * steps)


def row(processes: int, **known: Any) -> RowOutlook:
    return RowOutlook("row", {}, processes, **known)


def test_the_whole_is_the_sum_over_processes_that_can_run() -> None:
    rows = (row(4, seconds=10.0), row(2, seconds=5.0), row(2, problem="no such thing"))
    plan = Outlook("", "factorial", "", "demo", 2, rows, (), drifts=2)
    assert (plan.processes, plan.seconds) == (8, 40.0 + 10.0 + 20.0)
    unknown = plan._replace(rows=(*rows, row(2)))
    assert unknown.seconds is None


def test_every_cell_is_listed_with_its_row_and_seed_and_rows_that_cannot_run_are_not() -> None:
    able, other = row(8, seconds=10.0, peak_bytes=7), row(4, seconds=5.0, share=0.5)._replace(label="other")
    rows = (able._replace(label="baseline"), other, row(4, problem="no such thing"))
    plan = Outlook("", "factorial", "", "demo", 2, rows, (), drifts=3, at_seeds=(5, 6))
    found = plan.cells()
    assert len(found) == 12
    assert [one.name for one in found[:3]] == ["baseline", "baseline (again)", "other"]
    assert [(one.seed, one.process) for one in found[::3]] == [(5, 0), (5, 1), (6, 0), (6, 1)]
    assert (found[1].peak_bytes, found[1].seconds, found[2].seconds, found[2].share) == (7, 10.0, 5.0, 0.5)
    assert plan.plain(cells=True)["cells"][2]["name"] == "other"
    assert "cells" not in plan.plain(cells=False)
    table = [block for block in outlook_report(plan, cells=True) if isinstance(block, Table)][-1]
    assert table.rows[2] == ("other", "5", "1", UNKNOWN, "5.00 s", "if it goes on")
    assert len([block for block in outlook_report(plan) if isinstance(block, Table)]) == 1


def test_a_control_that_cannot_run_ends_the_plan_before_other_rows(tmp_path: Path) -> None:
    said: list[str] = []
    study = Factorial(vary={"training.learning_rate": ("1e-3", "3e-4")})  # type: ignore[dict-item]
    base = load("demo", [f"data.path={tmp_path / 'absent.txt'}"])
    with pytest.raises(UsageError, match=r"^the control cannot run: .*absent\.txt"):
        outlook(study, base, Home(tmp_path / "home"), lambda message, share: said.append(message))
    assert len(said) <= 1


def small(tmp_path: Path, kind: str, **fields: Any) -> Path:
    """A file of a study of a tiny model on a text of its own, on a machine whose rates are known."""
    (tmp_path / "text.txt").write_text("The quick brown fox jumps over the lazy dog.\n" * 200)
    home = Home(tmp_path / "home").ready()
    rates_file(home).write_bytes(with_rates(rates_file(home), detect(), {"cpu": MEASURED}))
    shape = ["model.n_layer=1", "model.n_embd=8", "model.n_head=1", "model.context_length=8", "training.batch_size=2"]
    overrides = [*shape, "training.steps=8", "training.warmup_steps=1", f"data.path={tmp_path / 'text.txt'}"]
    path = tmp_path / "study.yaml"
    path.write_text(json.dumps({"kind": kind, "base": "demo", "overrides": overrides, "seeds": 2, **fields}))
    return path


def test_a_study_without_times_has_none_in_its_plan_and_runs_a_seed_once(tmp_path: Path) -> None:
    path = small(tmp_path, "factorial", vary={"training.learning_rate": [1e-3, 1e-2]})
    timed, untimed = (plan(path, loss_only=only, home=tmp_path / "home") for only in (False, True))
    assert timed.seconds is not None
    assert [row.processes for row in timed.rows] == [8, 4]
    assert (untimed.timed, untimed.seconds) == (False, None)
    assert [(row.processes, row.step_seconds) for row in untimed.rows] == [(4, None), (2, None)]
    assert untimed.rows[0].peak_bytes == timed.rows[0].peak_bytes
    assert "The study measures losses and memory only, so no time is predicted." in list(outlook_report(untimed))


def test_a_search_by_losses_predicts_no_times_and_has_none_to_calibrate(tmp_path: Path) -> None:
    space = {"training.learning_rate": {"low": 1e-4, "high": 1e-2}}
    path = small(tmp_path, "successive_halving", trials=4, steps=[4, 8], reduction=2, space=space)
    found = plan(path, home=tmp_path / "home")
    assert (found.timed, found.seconds) == (False, None)
    with pytest.raises(UsageError, match="has no times to calibrate"):
        plan(path, calibrate=True, home=tmp_path / "home")
