"""The time of a row before it runs."""

from pathlib import Path
from typing import Any

import pytest

from assay.config import load
from assay.config.home import Home
from assay.errors import UsageError
from assay.optimizations import resolved
from assay.report.blocks import Table
from assay.report.formats import UNKNOWN
from assay.report.study.outlook import outlook_report
from assay.studies.execution.pace import START_SECONDS, process_seconds
from assay.studies.kinds.factorial import Factorial
from assay.studies.outlook import Outlook, RowOutlook, outlook


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
    run = resolved(load("demo", [*shape, *(f"training.{one}" for one in changes)]))
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
