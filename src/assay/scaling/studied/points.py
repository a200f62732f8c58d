"""Points of a study's record: size, tokens, FLOPs and validation loss of each run that is done.

Every study has points, whatever it varies. In an `isoflop` study each has a role. The runs of the budgets are fitted,
the longest is held out, and those at other rates test the rule of the learning rate.
"""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

import numpy as np

from assay.errors import UsageError
from assay.records.run import RunResult
from assay.records.status import Status
from assay.records.study import AGAIN, CellResult, ComparisonRecord
from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN, Points
from assay.studies.isoflop.sizes import counts
from assay.studies.kinds.isoflop import AS_RULED, BUDGET, COUNT, HELD_OUT_TIMES, RATE, Isoflop
from assay.units import format_power

if TYPE_CHECKING:
    import pandas

Role = Literal["fitted", "held out", "rate"]


@dataclass(frozen=True)
class StudyPoint:
    """One run as a point of a law."""

    row: str
    seed: int
    role: Role
    budget: str
    """FLOPs that the file of the study gives; empty in another kind of study."""
    rate: str
    """Factor of the learning rate; 1 is that of the rule."""
    width: int
    layers: int
    steps: int
    parameters: int
    """N in the count of the study."""
    total: int
    non_embedding: int
    tokens: int
    flops: float
    """C = 6·N·D."""
    exact_flops: float | None
    """FLOPs operator by operator, by the estimator; None if it predicts none."""
    epochs: float | None
    """Passes over the text; None if it is not known how long this is."""
    loss: float

    @property
    def label(self) -> str:
        """Name of the run in tables: its size and its compute."""
        return f"{self.layers} × {self.width}, {self.budget or format_power(self.flops)} FLOPs"


def points_of(record: ComparisonRecord) -> tuple[StudyPoint, ...]:
    """Return the points of a record, by compute and size. Raises `UsageError` if no run has a loss."""
    done = [
        one
        for one in record.cells
        if one.cell.treatment != AGAIN and not one.cell.replicate and one.result.status is Status.DONE
    ]
    found = [_point(one, record) for one in done if one.result.val_loss is not None and one.result.tokens]
    if not found:
        raise UsageError(f"no run of the study {record.id} has a validation loss yet")
    return tuple(sorted(_with_roles(found), key=lambda one: (one.flops, one.parameters, one.rate, one.seed)))


def unfinished(record: ComparisonRecord) -> tuple[str, ...]:
    """Return the names of the runs that have ended without a loss."""
    return tuple(one.cell.name for one in record.cells if one.result.status is not Status.DONE)


def array_of(points: Iterable[StudyPoint]) -> Points:
    """Return points as arrays for a fit."""
    rows = np.array([(one.parameters, one.tokens, one.loss) for one in points], dtype=float).reshape(-1, 3)
    return Points(rows[:, 0], rows[:, 1], rows[:, 2])


def to_frame(points: Sequence[StudyPoint]) -> "pandas.DataFrame":
    """Return a data frame with a row for each point."""
    import pandas

    return pandas.DataFrame([vars(one) for one in points])


def to_csv(points: Sequence[StudyPoint]) -> str:
    """Return points as CSV, which `assay scaling fit` reads."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, [one.name for one in fields(StudyPoint)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(vars(one) for one in points)
    return stream.getvalue()


def _point(one: CellResult, record: ComparisonRecord) -> StudyPoint:
    levels, result = one.cell.levels, one.result
    known, model = counts(result.config.model), result.config.model
    parameters = known["non_embedding" if levels.get(COUNT) == "non_embedding" else "total"]
    step_flops = None if result.predicted is None else result.predicted.step_flops
    scaled = record.kind == Isoflop.kind
    rate = levels.get(RATE, AS_RULED) if scaled else AS_RULED
    return StudyPoint(
        row=one.cell.treatment,
        seed=one.cell.seed,
        role="fitted" if rate == AS_RULED else "rate",
        budget=levels.get(BUDGET, "") if scaled else "",
        rate=rate,
        width=model.n_embd,
        layers=model.n_layer,
        steps=result.steps,
        parameters=parameters,
        **known,
        tokens=result.tokens,
        flops=FLOPS_PER_PARAMETER_AND_TOKEN * parameters * result.tokens,
        exact_flops=None if step_flops is None else float(step_flops * result.steps),
        epochs=_epochs(result),
        loss=result.val_loss or math.nan,
    )


def _epochs(result: RunResult) -> float | None:
    if not result.epoch_seconds or not result.tokens_per_second:
        return None
    return result.tokens / (result.epoch_seconds * result.tokens_per_second)


def _with_roles(points: Sequence[StudyPoint]) -> list[StudyPoint]:
    """Return the points, with the longest held out if it spends ten times the compute of all others."""
    from dataclasses import replace

    budgets = sorted({float(one.budget) for one in points if one.budget})
    if len(budgets) < 2 or budgets[-1] < HELD_OUT_TIMES * budgets[-2] * (1 - 1e-9):
        return list(points)
    return [replace(one, role="held out") if one.budget and float(one.budget) == budgets[-1] else one for one in points]
