"""The time of a row before it runs."""

from pathlib import Path
from typing import Any

import pytest

from assay.config import load
from assay.config.home import Home
from assay.errors import UsageError
from assay.optimizations import resolved
from assay.studies.kinds.factorial import Factorial
from assay.studies.outlook import Outlook, RowOutlook, _steps, outlook


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
    assert _steps(run, step_seconds=0.5) == pytest.approx(steps)


def row(processes: int, **known: Any) -> RowOutlook:
    return RowOutlook("row", {}, processes, **known)


def test_the_whole_is_the_sum_over_processes_that_can_run() -> None:
    rows = (row(4, seconds=10.0), row(2, seconds=5.0), row(2, problem="no such thing"))
    plan = Outlook("", "factorial", "", "demo", 2, rows, (), drifts=2)
    assert (plan.processes, plan.seconds) == (8, 40.0 + 10.0 + 20.0)
    unknown = plan._replace(rows=(*rows, row(2)))
    assert unknown.seconds is None


def test_a_control_that_cannot_run_ends_the_plan_before_other_rows(tmp_path: Path) -> None:
    said: list[str] = []
    study = Factorial(vary={"training.learning_rate": ("1e-3", "3e-4")})  # type: ignore[dict-item]
    base = load("demo", [f"data.path={tmp_path / 'absent.txt'}"])
    with pytest.raises(UsageError, match=r"^the control cannot run: .*absent\.txt"):
        outlook(study, base, Home(tmp_path / "home"), lambda message, share: said.append(message))
    assert len(said) <= 1
