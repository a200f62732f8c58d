"""Changes of all rows of a study for one metric, and the effects and interactions of the model of its factors.

A term names levels of one, two or three factors, none of them the first level. Its column is the product over its
factors of (1 if the row has the level, else 0) − 1 / (number of levels). With these columns a coefficient is the effect
in plain words.

- One factor: the mean of the level less the mean of the first level, over all levels of the other factors.
- Two factors: how much the effect of one differs if the other is at its level instead of its first one. It is zero if
  their changes add up.
- Three factors: how much that differs with the third factor.

For two levels, textbooks print half of an interaction of two factors, and a quarter of one of three.

Columns that are equal up to a factor and a constant are aliases: one figure is the sum of their effects. Among the
others, a coefficient counts only if every solution of the model agrees on it, whatever the other coefficients are.

Effects, interactions and deviations from additivity are contrasts: sums of the rows' changes with weights. Each is
given on two scales. *Ratio*: the change is log(row / control), so savings that multiply add up. *Points*: the change is
(row − control) / control, in percentage points of the control, as a table prints it. Savings that multiply do not add
up in points: −50 % and −50 % make −75 %.

*Times and process memory*. The process is the unit (`analysis.intervals`). Least squares gives log changes and their
covariance, with the deviation between processes pooled over rows. A slow row deviates by more seconds than a fast one.
So the error in points is the error of the logarithm times the slope of exp (the delta method).

A row that deviates more than the others has a bracket by its own variance. It keeps this variance in every contrast
(Welch 1938, Satterthwaite 1946). With the pooled variance a sum would look surer than the row that spoils it. A
contrast of such a row alone has that row's bracket. Each further row adds its variance.

All contrasts of a metric on one scale hold together in 95 % of studies. They share the estimated deviation, so the
factor is that of the studentized maximum modulus (Šidák 1967): Dunnett's with no correlation. It is exact for
contrasts without correlation, and wide enough for all others.

*Losses*. The seed is the unit: a contrast has one value per seed, and its value is that of a typical seed (`typical`).
Treatments change losses by amounts that vary unequally, so nothing is pooled. Bonferroni's correction replaces the
factor, because the contrasts have no deviation in common. Seeds that lack a row of the contrast are left out.

*Exact metrics* have no interval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, product
from math import expm1
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.analysis.caveats import comparable_times, ended_claims, same_environment
from assay.analysis.comparison import Comparison
from assay.analysis.effects import CONTROLS, LEAST_SEEDS, LOSS_STEP, designs, observations, rounds, typical
from assay.analysis.factors.layout import Change, FactorLayout, planned_layout
from assay.analysis.intervals import LEAST_DEGREES, Differences, Floats, critical_values
from assay.analysis.metrics import Metric, metrics
from assay.analysis.row import usable
from assay.config.base import Frozen
from assay.records.study import BASELINE, CellResult

LARGEST = 3
"""Most factors of an interaction."""
_ZERO = 1e-9


class Term(NamedTuple):
    """A main effect or an interaction."""

    changes: tuple[Change, ...]
    aliases: tuple[tuple[Change, ...], ...] = ()
    """Effects of at most two factors that the design cannot distinguish from this one."""


class Model(NamedTuple):
    """Effects that a design shows, each as a contrast of the rows' changes."""

    terms: tuple[Term, ...]
    weights: Floats
    """Weights of the rows' changes: [terms, rows]."""
    unknown: tuple[Term, ...]
    """Effects that the rows do not determine."""


def model(design: FactorLayout, rows: Sequence[str], covariance: Floats) -> Model | None:
    """Return the effects that some rows determine, by least squares with their covariance; None if there are none."""
    levels = [
        tuple(dict.fromkeys((factor.levels[0], *(design.rows[name][at] for name in rows))))
        for at, factor in enumerate(design.factors)
    ]
    varied = [at for at, one in enumerate(levels) if len(one) > 1]
    if len(varied) < 2 or sum(len(levels[at]) - 1 for at in varied) > len(rows):
        return None
    indicators = {
        (at, level): np.array([design.rows[name][at] == level for name in (BASELINE, *rows)]) - 1 / len(levels[at])
        for at in varied
        for level in levels[at][1:]
    }
    columns = {
        tuple((design.factors[at].key, level) for at, level in term): np.prod([indicators[one] for one in term], axis=0)
        for size in range(1, LARGEST + 1)
        for chosen in combinations(varied, size)
        for term in product(*([(at, level) for level in levels[at][1:]] for at in chosen))
    }
    return _solved(columns, covariance)


def _solved(columns: dict[tuple[Change, ...], Floats], covariance: Floats) -> Model | None:
    """Return the model of these columns, whose first entry is the control's."""
    terms = _unlike(columns)
    matrix = np.stack([columns[term.changes][1:] - columns[term.changes][0] for term in terms], axis=1)
    root = np.linalg.inv(np.linalg.cholesky(covariance))
    inverse = np.linalg.pinv(root @ matrix, rcond=_ZERO)
    sure = np.isclose(np.diag(inverse @ root @ matrix), 1.0, atol=1e-6)
    if not sure.any():
        return None
    weights = (inverse @ root)[sure]
    weights[np.abs(weights) < _ZERO] = 0.0
    known = tuple(term for term, one in zip(terms, sure, strict=True) if one)
    return Model(known, weights, tuple(term for term, one in zip(terms, sure, strict=True) if not one))


def _unlike(columns: dict[tuple[Change, ...], Floats]) -> list[Term]:
    """Return the simplest term of each set of aliases; terms that are constant in the design are left out."""
    sets: dict[bytes, list[tuple[Change, ...]]] = {}
    for changes, column in columns.items():
        centred = column - column.mean()
        size = np.linalg.norm(centred)
        if size > _ZERO:
            unit = np.round(centred / size, 6)
            sets.setdefault((unit * np.sign(unit[np.flatnonzero(unit)[0]]) + 0.0).tobytes(), []).append(changes)
    return [Term(first, tuple(one for one in others if len(one) < LARGEST)) for first, *others in sets.values()]


class Scale(StrEnum):
    """Scale on which changes are added."""

    RATIO = "ratio"
    POINTS = "points"


class ChangeEstimate(Frozen):
    """A contrast as a fraction: −0.1 is ten percent less, or ten points less."""

    value: float
    interval: tuple[float, float] | None
    """None if the metric repeats exactly, or if there are too few processes or seeds."""


class Contrasts(NamedTuple):
    """Values of several contrasts with the half widths of their intervals, NaN where there is none."""

    values: Floats
    half_widths: Floats


@dataclass(frozen=True)
class ProcessChanges:
    """Log changes of rows, with processes as the unit; leading axes are several studies of one design."""

    rows: tuple[str, ...]
    found: Differences
    """Log changes against the control, with their errors: [..., rows]."""
    covariance: Floats
    """Covariance of the log changes at σ = 1: [rows, rows]."""

    def contrasts(self, weights: Floats, scale: Scale, family: int) -> Contrasts:
        """Return the contrasts with some weights, [contrasts, rows], as members of a family of a size.

        One with a row that is judged by its own deviation is a member of at least the family of rows, as that row is.
        """
        logs, points = self.found.change, scale is Scale.POINTS
        values = (np.expm1(logs) if points else logs) @ weights.T
        slopes = weights * np.exp(logs)[..., None, :] if points else weights
        apart = self.found.apart[..., None, :] & (weights != 0)
        variance, degrees = self._variance(slopes, apart)
        # A sum is not surer than the row that spoils it, so only whole degrees beyond that row's count.
        own = np.where(apart, self.found.degrees[..., None, :], 0.0).max(axis=-1)
        surest = np.maximum(np.floor(degrees), np.minimum(own, degrees))
        wider = critical_values(max(family, len(self.rows)), 0.0, surest)
        factor = np.where(apart.any(axis=-1), wider, critical_values(family, 0.0, degrees))
        return Contrasts(values, factor * np.sqrt(variance))

    def _variance(self, slopes: Floats, apart: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Return the variance of contrasts and its degrees of freedom.

        `apart` says which rows of each contrast have a variance of their own. Satterthwaite's degrees of freedom are
        those of a sum of independent variances.
        """
        found, pooled = self.found, self.found.deviation[..., None]
        own = np.where(apart, slopes * found.error[..., None, :], 0.0) ** 2
        instead = np.where(apart, slopes * np.sqrt(np.diag(self.covariance)), 0.0) ** 2
        spread = np.einsum("...ci,ij,...cj->...c", slopes, self.covariance, slopes)
        rest = pooled**2 * np.maximum(spread - instead.sum(axis=-1), 0.0)
        whole, degrees = rest + own.sum(axis=-1), np.maximum(found.pooled_degrees, 1)[..., None]
        squares = rest**2 / degrees + (own**2 / np.maximum(found.degrees, 1)[..., None, :]).sum(axis=-1)
        return whole, np.divide(whole**2, squares, out=degrees + np.zeros_like(whole), where=squares > 0)

    @property
    def bounded(self) -> bool:
        """True if contrasts have intervals."""
        return bool(np.all(self.found.pooled_degrees >= LEAST_DEGREES))


@dataclass(frozen=True)
class SeedChanges:
    """Figures of rows by seed, with seeds as the unit."""

    rows: tuple[str, ...]
    controls: Floats
    """Figure of the control at each seed."""
    figures: Floats
    """Figures of the rows: [seeds, rows], NaN where a row has none."""
    sampled: bool
    """True if the figures vary by chance; an exact metric has no intervals."""

    @property
    def covariance(self) -> Floats:
        """Weight of each row in a fit: rows count alike."""
        return np.eye(len(self.rows))

    def contrasts(self, weights: Floats, scale: Scale, family: int) -> Contrasts:
        """Return the contrasts with some weights, [contrasts, rows], as members of a family of a size."""
        ratios = self.figures / self.controls[:, None]
        mean = fmean(self.controls)
        samples = np.log(ratios) if scale is Scale.RATIO else (self.figures - self.controls[:, None]) / mean
        found = [_over_seeds(samples[:, one != 0] @ one[one != 0], family if self.sampled else 0) for one in weights]
        return Contrasts(np.array([value for value, _ in found]), np.array([half for _, half in found]))

    @property
    def bounded(self) -> bool:
        """True if a contrast of rows that every seed has gets an interval."""
        return self.sampled and len(self.controls) >= LEAST_SEEDS


RowChanges = ProcessChanges | SeedChanges


def compared_metrics(comparison: Comparison) -> list[Metric]:
    """Return the metrics of a study's tables, without rates, which repeat what the step time says."""
    known = (one for one in metrics().values() if one.shown and one.per_step is None)
    return [one for one in known if one.kind != "timed" or comparison.record.measures(one.unit)]


def row_changes(comparison: Comparison, metric: Metric) -> RowChanges | None:
    """Return the changes of all rows that have a figure; None if there is none, or none of the control."""
    good = usable(comparison.record.cells)
    alike = same_environment(good, comparison.environment)
    cells = sorted(alike, key=lambda one: (one.cell.seed, one.cell.process, one.cell.treatment, one.cell.replicate))
    names = [name for name in comparison.record.treatments if any(one.cell.treatment == name for one in cells)]
    if metric.kind == "timed":
        record = comparison.record
        timely = comparable_times(metric, cells, ended_claims(record))
        return _by_process(metric, timely, names, rounds(good, record.rounds))
    return _by_seed(metric, cells, names)


def estimates(found: RowChanges, weights: Floats, scale: Scale, family: int) -> list[ChangeEstimate]:
    """Return contrasts as fractions; on the scale of ratios, 0.1 means that a ratio is 10 % higher."""
    middle, half = found.contrasts(weights, scale, family)
    read = expm1 if scale is Scale.RATIO else float
    ends = zip(middle, half, strict=True)
    return [
        ChangeEstimate(
            value=read(value), interval=None if np.isnan(reach) else (read(value - reach), read(value + reach))
        )
        for value, reach in ends
    ]


def _by_process(
    metric: Metric, cells: Sequence[CellResult], names: Sequence[str], kept: Mapping[int, Sequence[int]]
) -> ProcessChanges | None:
    seen = observations(metric, cells, kept)
    names = [name for name in names if any(one.treatment == name for one in seen)]
    seen = [one for one in seen if one.treatment in (*CONTROLS, *names)]
    if not names or not any(one.treatment in CONTROLS for one in seen):
        return None
    values = np.array([one.log for one in seen])
    design, by_seed = designs(seen, names)
    found = design.differences(values)
    if np.isnan(found.change).any():
        design, found = by_seed, by_seed.differences(values)
    known = np.flatnonzero(~np.isnan(found.change))
    rows = tuple(names[at] for at in known)
    covariance = design.fit(values[None]).covariance[np.ix_(known, known)]
    return ProcessChanges(rows, found.of(known.tolist()), covariance) if rows else None


def _by_seed(metric: Metric, cells: Sequence[CellResult], names: Sequence[str]) -> SeedChanges | None:
    found: dict[tuple[int, str], list[float]] = {}
    for one in cells:
        value = metric.of_run(one.result)
        if value is not None and np.isfinite(value) and value > 0:
            name = CONTROLS[0] if one.cell.treatment in CONTROLS else one.cell.treatment
            found.setdefault((one.cell.seed, name), []).append(value)
    means = {key: fmean(values) for key, values in found.items()}
    seeds = sorted(seed for seed, name in means if name == CONTROLS[0])
    rows = tuple(name for name in names if any((seed, name) in means for seed in seeds))
    if not rows:
        return None
    figures = np.array([[means.get((seed, name), np.nan) for name in rows] for seed in seeds])
    controls = np.array([means[seed, CONTROLS[0]] for seed in seeds])
    return SeedChanges(rows, controls, figures, metric.kind == "loss")


def _over_seeds(values: Floats, family: int) -> tuple[float, float]:
    """Return a contrast of a typical seed that has it, and the half width of its interval.

    An exact metric has no family. Its contrast is the mean over seeds, and has no interval.
    """
    known = [float(value) for value in values if not np.isnan(value)]
    if not known:
        return np.nan, np.nan
    if not family:
        return fmean(known), np.nan
    found = typical(known, family, LOSS_STEP)
    return found.middle, np.nan if found.half is None else found.half


class FactorEffect(Frozen):
    """A main effect, or an interaction of two or three factors."""

    changes: tuple[Change, ...]
    """The level of each of its factors that is compared with the control's level."""
    aliases: tuple[tuple[Change, ...], ...]
    """Effects that the design cannot distinguish from this one; the figure is the sum of all."""
    ratio: ChangeEstimate
    """The effect as a ratio less one. An interaction is the ratio of two ratios, less one."""
    points: ChangeEstimate
    """The effect in points of the control: the additive scale."""


class MetricEffects(Frozen):
    """Effects of all factors on one metric."""

    metric: str
    effects: tuple[FactorEffect, ...]
    unknown: tuple[tuple[Change, ...], ...]
    """Effects that the measured rows do not determine."""
    absent: tuple[Change, ...] = ()
    """Levels of which no row has the figure, so that no average includes them."""
    bounded: bool
    """True if there are processes or seeds enough for intervals."""


def factor_effects(comparison: Comparison) -> tuple[MetricEffects, ...]:
    """Return the effects on every metric, for studies whose design determines them; the simplest effects are first."""
    design = planned_layout(comparison.record)
    rows = [name for name in design.rows if name != BASELINE]
    whole = model(design, rows, np.eye(len(rows))) if rows else None
    changes = ((one.name, row_changes(comparison, one)) for one in compared_metrics(comparison))
    found = (_effects_on(metric, design, known, whole) for metric, known in changes if known is not None)
    return tuple(one for one in found if one is not None)


def _effects_on(metric: str, design: FactorLayout, changes: RowChanges, whole: Model | None) -> MetricEffects | None:
    """Return the effects on one metric; None if neither its rows nor all rows of the design determine any."""
    solved = model(design, changes.rows, changes.covariance)
    if solved is None and whole is None:
        return None
    effects: tuple[FactorEffect, ...] = ()
    if solved is not None:
        scales = [estimates(changes, solved.weights, scale, len(solved.terms)) for scale in Scale]
        effects = tuple(
            FactorEffect(changes=term.changes, aliases=term.aliases, ratio=one, points=other)
            for term, one, other in zip(solved.terms, *scales, strict=True)
        )
    asked = [term.changes for each in (whole, solved) if each for term in (*each.terms, *each.unknown)]
    known = {one for effect in effects for one in (effect.changes, *effect.aliases)}
    return MetricEffects(
        metric=metric,
        effects=effects,
        unknown=tuple(one for one in sorted(dict.fromkeys(asked), key=len) if one not in known),
        absent=_absent(design, changes.rows),
        bounded=changes.bounded,
    )


def _absent(design: FactorLayout, rows: Sequence[str]) -> tuple[Change, ...]:
    """Return the levels that none of these rows has, and the control neither."""
    seen = {(factor.key, design.rows[row][at]) for at, factor in enumerate(design.factors) for row in (BASELINE, *rows)}
    every = ((factor.key, level) for factor in design.factors for level in factor.levels)
    return tuple(one for one in every if one not in seen)
