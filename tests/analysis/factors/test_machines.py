"""The machine as a blocking factor: planted changes that are the same on two machines, or are not."""

import json
from collections.abc import Mapping
from math import exp, log
from typing import Any

import pytest

from assay.analysis.comparison import Comparison, analyse
from assay.analysis.factors.machines import Machines, machines
from assay.errors import UsageError
from assay.records.study import CellResult
from assay.report.studies import machines_report, machines_values
from support.factorials import Figures, factorial, study

ROWS = factorial({"optimizations": ["none", "lion", "sdpa_attention"]})


def on(processor: str, step: float, **options: Any) -> Comparison:
    """The study on one machine, where lion takes `step` times the control's time."""

    def of(levels: Mapping[str, str]) -> Figures:
        return (0.8, step, 0.97) if levels["optimizations"] == "lion" else (1, 1, 1)

    options = {"between": 0.004, "apart": 0.001, **options}
    made = study(options.pop("rows", ROWS), of, **options)
    cells = tuple(_moved(one, processor) for one in made.cells)
    return analyse(made.model_copy(update={"id": f"of-{processor}", "cells": cells}))


def test_each_column_has_the_interval_of_its_own_study() -> None:
    studies = [on("Zen", 0.8, apart=0.2), on("Lake", 0.9, apart=0.2)]
    written = machines_values(machines(studies))
    (told,) = [one for one in written["rows"] if one["metric"] == "val_loss" and "lion" in one["row"]]
    for change, each in zip(told["changes"], studies, strict=True):
        effect = next(row for row in each.rows if "lion" in row.treatment).effects["val_loss"]
        assert effect.interval is not None
        assert change["interval"] == pytest.approx(effect.interval)


def _moved(one: CellResult, processor: str) -> CellResult:
    assert one.result.environment is not None
    environment = one.result.environment.model_copy(update={"processor": processor})
    return one.model_copy(update={"result": one.result.model_copy(update={"environment": environment})})


def lion(found: Machines, metric: str = "step_seconds") -> Any:
    return next(one for one in found.rows if (one.metric.name, "lion" in one.row) == (metric, True))


def test_equal_changes_are_not_told_apart_and_unequal_ones_are() -> None:
    same = machines([on("Zen", 0.8), on("Lake", 0.8), on("Rock", 0.8)])
    assert same.names == ("Zen", "Lake", "Rock")
    assert lion(same).differ is False
    assert lion(machines([on("Zen", 0.8), on("Lake", 0.9), on("Rock", 0.8)])).differ is True
    nothing = next(one for one in same.rows if "sdpa" in one.row and one.metric.name == "step_seconds")
    assert nothing.differ is False


def test_the_change_over_all_machines_is_the_mean_of_logarithms() -> None:
    one = lion(machines([on("Zen", 0.8), on("Lake", 0.9)]))
    first, second = one.changes
    assert exp(one.overall.log) == pytest.approx((exp(first.log) * exp(second.log)) ** 0.5)
    assert one.overall.log == pytest.approx(log(0.8 * 0.9) / 2, abs=0.01)
    assert one.overall.half == pytest.approx((first.half**2 + second.half**2) ** 0.5 / 2)
    exact = lion(machines([on("Zen", 0.8), on("Lake", 0.9)]), "tensors_peak_bytes")
    assert (exact.overall.fraction, exact.overall.interval, exact.differ) == (pytest.approx(-0.2), None, False)


def test_without_intervals_nothing_is_judged() -> None:
    found = machines([on("Zen", 0.8, seeds=1), on("Lake", 0.5, seeds=1)])
    assert lion(found, "val_loss").differ is None
    assert lion(found, "val_loss").overall.half is None


def test_machines_without_a_difference_are_named_by_their_study() -> None:
    first, second = on("Zen", 0.8), on("Zen", 0.9)
    second = second.model_copy(update={"record": second.record.model_copy(update={"id": "again"})})
    assert machines([first, second]).names == ("of-Zen", "again")


def test_rows_that_are_missing_are_named_and_other_runs_refused() -> None:
    fewer = on("Lake", 0.8, rows=ROWS[:2])
    found = machines([on("Zen", 0.8), fewer])
    assert {one.row for one in found.rows} == {"optimizations=lion"}
    assert found.missing == {"optimizations=sdpa_attention": ("of-Lake",)}
    other = fewer.record.model_copy(update={"cells": tuple(_longer(one) for one in fewer.record.cells)})
    with pytest.raises(UsageError, match="is another run in the study of-Lake than in of-Zen"):
        machines([on("Zen", 0.8), analyse(other)])
    with pytest.raises(UsageError, match="at least two different studies"):
        machines([fewer, fewer])
    with pytest.raises(UsageError, match="at least two different studies"):
        machines([fewer])


def _longer(one: CellResult) -> CellResult:
    run = one.cell.run
    longer = run.model_copy(update={"training": run.training.model_copy(update={"steps": 7})})
    return one.model_copy(update={"cell": one.cell.model_copy(update={"run": longer})})


def test_the_report_has_a_column_for_each_machine() -> None:
    found = machines([on("Zen", 0.8), on("Lake", 0.9, rows=ROWS[:2])])
    facts, table, *sentences = machines_report(found)
    assert facts.rows == (("A", "study of-Zen, Zen"), ("B", "study of-Lake, Lake"))  # type: ignore[union-attr]
    assert table.columns == ("row", "metric", "A", "B", "all", "machines")  # type: ignore[union-attr]
    told = {row[1]: row[2:] for row in table.rows}  # type: ignore[union-attr]
    assert told["step time"][-1] == "differ"
    assert told["tensors, peak"] == ("−20.0 %", "−20.0 %", "−20.0 %", "equal")
    assert "Not compared, because it is not in of-Lake: optimizations=sdpa_attention." in sentences
    written = json.loads(json.dumps(machines_values(found), allow_nan=False))
    assert written["machines"] == ["Zen", "Lake"]
    assert written["rows"][0]["changes"][0]["change"] == pytest.approx(-0.2)
