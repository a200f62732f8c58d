"""The answer of a study of scaling: does the law of the small runs predict the loss of the largest?

Every study has points, whatever it varies. In an `isoflop` study each has a role. The runs of the budgets are fitted,
the longest is held out, and those at other rates test the rule of the learning rate.

The law L(N, D) is fitted to the runs of the budgets. Nothing of the held-out run is read before its loss is predicted.
The interval is that of a single new loss, widened by the errors of hold-outs among the fitted runs.

Losses of small models are no sum of a term of size and one of data. More data help a model less once its size limits
it. So the law is that of Droppo and Elibol, which has the sum of Hoffmann et al. as a case. It has six constants. A
study with fewer than two points for each keeps the sum. Losses of single small runs scatter by about 1 %, and errors
count linearly beyond that only.

Decay branches of one trunk are no independent runs. They share its initial weights, its batches and its luck up to the
step at which they branch off. So intervals draw trunks with all of their points, and not single points.
"""

import csv
import io
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

import numpy as np

from assay.errors import UsageError
from assay.records.run import RunResult
from assay.records.status import Status
from assay.records.study import AGAIN, CellResult, ComparisonRecord
from assay.scaling.approaches import IsoFlop, isoflop
from assay.scaling.branch_saving import BranchSaving, branch_saving
from assay.scaling.fitted import FittedLaw
from assay.scaling.fitting import bootstrap, fit
from assay.scaling.law_intervals import extrapolation
from assay.scaling.laws.droppo import DROPPO
from assay.scaling.laws.hoffmann import HOFFMANN
from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN, Points, check, trunk_numbers
from assay.studies.isoflop_sizes import counts
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
    trunk: str
    """Name of the run whose first steps it shares; empty if it shares none."""
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
    trunks = {one.cell.branch.cell for one in record.cells if one.cell.branch is not None}
    done = [
        one
        for one in record.cells
        if one.cell.treatment != AGAIN and not one.cell.replicate and one.result.status is Status.DONE
    ]
    found = [_point(one, record, trunks) for one in done if one.result.loss.val_loss is not None and one.result.tokens]
    if not found:
        raise UsageError(f"no run of the study {record.id} has a validation loss yet")
    return tuple(sorted(_with_roles(found), key=lambda one: (one.flops, one.parameters, one.rate, one.seed)))


def unfinished_runs(record: ComparisonRecord) -> tuple[str, ...]:
    """Return the names of the runs that have ended without a loss."""
    return tuple(one.cell.name for one in record.cells if one.result.status is not Status.DONE)


def array_of(points: Iterable[StudyPoint]) -> Points:
    """Return points as arrays for a fit."""
    listed = list(points)
    rows = np.array([(one.parameters, one.tokens, one.loss) for one in listed], dtype=float).reshape(-1, 3)
    return Points(rows[:, 0], rows[:, 1], rows[:, 2], trunk=trunk_numbers([one.trunk for one in listed]))


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


def _point(one: CellResult, record: ComparisonRecord, trunks: Collection[str]) -> StudyPoint:
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
        trunk=one.cell.branch.cell if one.cell.branch else one.cell.name if one.cell.name in trunks else "",
        exact_flops=None if step_flops is None else float(step_flops * result.steps),
        epochs=_epochs(result),
        loss=result.loss.val_loss or math.nan,
    )


def _epochs(result: RunResult) -> float | None:
    if not result.speed.epoch_seconds or not result.speed.tokens_per_second:
        return None
    return result.tokens / (result.speed.epoch_seconds * result.speed.tokens_per_second)


def _with_roles(points: Sequence[StudyPoint]) -> list[StudyPoint]:
    """Return the points, with the longest held out if it spends ten times the compute of all others."""
    from dataclasses import replace

    budgets = sorted({float(one.budget) for one in points if one.budget})
    if len(budgets) < 2 or budgets[-1] < HELD_OUT_TIMES * budgets[-2] * (1 - 1e-9):
        return list(points)
    return [replace(one, role="held out") if one.budget and float(one.budget) == budgets[-1] else one for one in points]


DRAWS = 200
"""Draws of the bootstrap."""
SCATTER = 0.01
"""Scatter of log L of single runs, from which errors count linearly."""
_LEAST_A_CONSTANT = 2
"""Points for each constant of the law, in all and below an origin of a hold-out. A study has few runs, all of one
design. An interval that is too wide is less wrong than one that takes the law as true."""


@dataclass(frozen=True)
class HeldOutPrediction:
    """A held-out run and what the law says of it."""

    point: StudyPoint
    loss: float
    low: float
    high: float
    """Ends of the 95 % interval."""

    @property
    def error(self) -> float:
        """Predicted over measured loss, less one."""
        return self.loss / self.point.loss - 1

    @property
    def inside(self) -> bool:
        """True if the measured loss lies in the interval."""
        return self.low <= self.point.loss <= self.high


@dataclass(frozen=True)
class RateCheck:
    """Losses of one size at the rate of the rule, at half and at twice of it."""

    budget: str
    width: int
    losses: tuple[tuple[str, float], ...]
    """Factor of the rate, and the loss there, averaged over seeds."""

    @property
    def cost(self) -> float:
        """Loss at the rule's rate, less the lowest of all; zero if the rule's is the best."""
        return dict(self.losses)[AS_RULED] - min(loss for _, loss in self.losses)


@dataclass(frozen=True)
class ScalingAnswer:
    """A study of scaling with its law."""

    record: ComparisonRecord
    points: tuple[StudyPoint, ...]
    law: FittedLaw
    predictions: tuple[HeldOutPrediction, ...]
    isoflop: IsoFlop | None
    """Parabolas of the budgets; None if fewer than two have their lowest loss within their sizes."""
    rates: tuple[RateCheck, ...]
    unfinished: tuple[str, ...]
    """Runs that have ended without a loss."""
    saving: BranchSaving | None = None
    """Work that decay branches saved; None if no run is one."""

    @property
    def fitted(self) -> tuple[StudyPoint, ...]:
        """The points of the fit."""
        return tuple(one for one in self.points if one.role == "fitted")


def answer(record: ComparisonRecord, draws: int = DRAWS, seed: int = 0) -> ScalingAnswer:
    """Fit the law of a study's budgets, and predict the run that is held out.

    Raises `UsageError` if too few runs have a loss.
    """
    points = points_of(record)
    fitted = _enough(record, points)
    form = DROPPO if len(fitted) >= _LEAST_A_CONSTANT * len(DROPPO.constants) else HOFFMANN
    found = fit(fitted, form, SCATTER)
    drawn, beyond = tuple(bootstrap(found, draws, seed)), extrapolation(found, _LEAST_A_CONSTANT)
    law = FittedLaw(found, drawn, dropped=0, extrapolation=beyond)
    return ScalingAnswer(
        record=record,
        points=points,
        law=law,
        predictions=predictions(law, [one for one in points if one.role == "held out"]),
        isoflop=_isoflop(fitted, draws, seed),
        rates=rate_checks(points),
        unfinished=unfinished_runs(record),
        saving=branch_saving(record),
    )


def _enough(record: ComparisonRecord, points: Sequence[StudyPoint]) -> Points:
    """Return the points of the fit. Raises `UsageError` if they are too few, or too much alike, for a law."""
    fitted = array_of(one for one in points if one.role == "fitted")
    check(fitted, HOFFMANN.needs, HOFFMANN.least_points, f"the study {record.id}")
    return fitted


def _isoflop(fitted: Points, draws: int, seed: int) -> IsoFlop | None:
    try:
        return isoflop(fitted, draws, seed)
    except UsageError:
        return None


def predictions(law: FittedLaw, points: Sequence[StudyPoint]) -> tuple[HeldOutPrediction, ...]:
    """Return the law's prediction of each point."""
    if not points:
        return ()
    arrays = array_of(points)
    low, high = law.intervals_of(arrays)
    losses = law.law.losses(arrays)
    return tuple(
        HeldOutPrediction(point, *map(float, figures))
        for point, *figures in zip(points, losses, low, high, strict=True)
    )


def rate_checks(points: Sequence[StudyPoint]) -> tuple[RateCheck, ...]:
    """Return the test of the learning rate at each size that has other rates."""
    found = []
    for budget, width in dict.fromkeys((one.budget, one.width) for one in points if one.role == "rate"):
        by_rate: dict[str, list[float]] = {}
        for one in points:
            if (one.budget, one.width) == (budget, width):
                by_rate.setdefault(one.rate, []).append(one.loss)
        if AS_RULED in by_rate:
            found.append(
                RateCheck(budget, width, tuple((rate, sum(each) / len(each)) for rate, each in by_rate.items()))
            )
    return tuple(found)


def answer_of(record: ComparisonRecord) -> ScalingAnswer | None:
    """Return the answer of a study of scaling; None for another study, and while too few runs have ended."""
    if record.kind != Isoflop.kind:
        return None
    try:
        return answer(record)
    except UsageError:
        return None


def has_law(record: ComparisonRecord) -> bool:
    """Return True if a study is one of scaling whose ended runs suffice for a law. Nothing is fitted."""
    if record.kind != Isoflop.kind:
        return False
    try:
        return len(_enough(record, points_of(record))) > 0
    except UsageError:
        return False
