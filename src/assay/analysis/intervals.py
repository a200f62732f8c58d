"""Changes of several treatments against one baseline, with intervals that hold all at once, and their quantiles.

The process is the unit of replication. Blocks of one process share chance effects (its memory layout, its neighbours),
so they count once, however many there are. An observation is the mean logarithm of one process's blocks.

    y = row + block + deviation,        deviation ~ N(0, σ²), independent between processes

A block is a group of processes that took turns at one seed (a randomised block design). Least squares gives the change
of each row against the baseline; σ² is pooled over all rows. Its degrees of freedom are the observations less the
fitted parameters. The interval of a change is change ± c·error. The factor c is Dunnett's (1955, 1964): among k
treatments without any effect, the largest |change| / error exceeds it in 5 % of comparisons. With ρ the correlation of
two changes, which share the baseline, and s the ratio of estimated to true deviation,

    P(max |T| ≤ c) = ∫∫ [Φ((c·s + √ρ·z) / √(1−ρ)) − Φ((−c·s + √ρ·z) / √(1−ρ))]ᵏ φ(z) dz f(s) ds.

The baseline runs twice in each block. Both runs are the control, and √k runs of it are optimal for such a design. If
rows have unequal numbers of processes, the smallest correlation is used for all, which widens the intervals.

A row may deviate more than the others do, for instance with ranks that share cores. If an F test shows this at the
level `WIDER`, the row's interval uses its own deviation, if that makes it wider. Few processes seldom reach that level.
So a higher probability of the test also counts, in part: the part falls with its logarithm, the sooner the more rows
there are. At the level `APART` the others are pooled without the row, so that it does not hide their changes.

A deviation is at least that of rounding. Values that are rounded to steps may be equal in all processes, and their
interval would have no width. The smallest difference of two values bounds the step q, and the deviation is at least
q/√12.

Caveat: the deviation of logarithms is assumed to be normal. `benchmarks/validity.py` tests it with autocorrelated
blocks, tails, outliers, drift and rounded values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
"""Probability that all intervals of a comparison hold."""
LEAST_DEGREES = 2
"""Fewest degrees of freedom of an interval; a single one would rest on one difference."""

Floats = NDArray[np.floating[Any]]


def student(probability: float, degrees: Floats | float) -> Floats:
    """Quantile of Student's t; NaN below one degree of freedom."""
    from scipy.special import stdtrit

    degrees = np.asarray(degrees, dtype=float)
    return np.where(degrees >= 1, stdtrit(np.maximum(degrees, 1), probability), np.nan)


@lru_cache(maxsize=256)
def critical_value(count: int, correlation: float, degrees: int) -> float:
    """Dunnett's two-sided factor for `count` changes with equal correlations; NaN below `LEAST_DEGREES`."""
    if degrees < LEAST_DEGREES or count < 1:
        return float("nan")
    low = float(student((1 + CONFIDENCE) / 2, degrees))
    high = float(student(1 - (1 - CONFIDENCE) / (2 * count), degrees))
    while high - low > 1e-6 and count > 1:
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, count, correlation, degrees) < CONFIDENCE else (low, middle)
    return high


def critical_values(count: int, correlation: float, degrees: Floats) -> Floats:
    """Return `critical_value` for each number of degrees of freedom; between whole ones it is linear in 1 / degrees."""
    degrees = np.asarray(degrees, dtype=float)
    whole = np.floor(degrees)
    known = {one: critical_value(count, correlation, int(one)) for one in np.unique([whole, whole + 1])}
    low, high = (np.vectorize(known.__getitem__, otypes=[float])(one) for one in (whole, whole + 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(degrees == whole, 0.0, (1 / whole - 1 / degrees) / (1 / whole - 1 / (whole + 1)))
    return np.asarray(np.where(part > 0, low + part * (high - low), low))


def _inside(bound: float, count: int, correlation: float, degrees: int) -> float:
    """P(max |T| ≤ bound): Gauss–Hermite over the shared part, midpoints of probability over the deviation."""
    from scipy.special import ndtr

    nodes, weights = _shared_nodes() if correlation > 0 else (np.zeros(1), np.ones(1))
    reach = bound * _scales(degrees)[:, None]
    shared, own = np.sqrt(correlation) * nodes, np.sqrt(1 - correlation)
    each = ndtr((reach + shared) / own) - ndtr((shared - reach) / own)
    return float((each**count).mean(axis=0) @ weights)


@cache
def _shared_nodes() -> tuple[Floats, Floats]:
    """Return nodes and weights over a normal variable, for even functions: half of 48, less those without weight."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(48)
    kept = (nodes > 0) & (weights > 1e-13 * weights.sum())
    return nodes[kept], weights[kept] / weights[kept].sum()


@lru_cache(maxsize=256)
def _scales(degrees: int) -> Floats:
    """Return 400 equally likely ratios of an estimated deviation to the true one."""
    from scipy.special import chdtri

    return np.asarray(np.sqrt(chdtri(degrees, (np.arange(400) + 0.5) / 400) / degrees))


POWER = 0.8
"""Probability with which a true change of the size `likely` is distinguished from zero."""
WIDER = 0.05
"""Level of the F test at which a row that deviates more is judged by its own deviation alone."""
APART = 1e-4
"""Level at which such a row is left out of the pooled deviation."""

_SINGULAR = 1e-9
"""Singular values of a projection below this are rounding."""
_SAME = 1e-12
"""Logarithms that are so near are of equal values, whose means were rounded."""


@dataclass(frozen=True)
class Differences:
    """Changes of k rows on the log scale; leading axes are several comparisons of one design."""

    change: Floats
    error: Floats
    """Standard errors of the changes."""
    degrees: Floats
    critical: Floats
    """Half width of an interval in standard errors; NaN if there are too few degrees of freedom."""
    deviation: Floats
    """Pooled deviation between processes, without the axis of rows."""
    pooled_degrees: Floats
    apart: NDArray[np.bool_]
    """True for rows with a deviation of their own."""

    def of(self, rows: Sequence[int]) -> "Differences":
        """Return the changes of some of the rows."""
        each = ("change", "error", "degrees", "critical", "apart")
        return replace(self, **{name: getattr(self, name)[..., list(rows)] for name in each})

    @property
    def half_width(self) -> Floats:
        """Distance from the change to either end of its interval."""
        return self.critical * self.error

    @property
    def differs(self) -> NDArray[np.bool_]:
        """True where the interval excludes zero."""
        return np.asarray(np.abs(self.change) > self.half_width)

    @property
    def likely(self) -> Floats:
        """Smallest true change that is distinguished from zero with the probability `POWER`."""
        return (self.critical + student(POWER, self.degrees)) * self.error


class LeastSquares(NamedTuple):
    """Least-squares fit of some observations."""

    change: Floats
    covariance: Floats
    """Covariance of the changes at σ = 1; NaN in a row whose change the observations do not determine."""
    scale: Floats
    """Standard errors at σ = 1, by row."""
    variance: Floats
    degrees: int
    correlation: float
    """Smallest correlation of two changes."""


class Design:
    """Row and block of each observation; row 0 is the baseline."""

    def __init__(self, rows: Sequence[int], blocks: Sequence[int]) -> None:
        self._rows, self._blocks = np.asarray(rows, dtype=int), np.asarray(blocks, dtype=int)
        self.count = int(self._rows.max(initial=0))

    def differences(self, values: Floats) -> Differences:
        """Return the changes of all rows. `values` is [..., observations], on the log scale.

        A row that shares no block with the baseline, directly or through other rows, gets NaN.
        """
        values = np.asarray(values, dtype=float)
        flat = values.reshape(-1, values.shape[-1])
        least = _rounding(flat)
        whole, chance = self.fit(flat), self._chances(flat, least)
        variance, pooled = self._deviation(flat, chance < APART)
        variance = np.maximum(variance, least)
        error = np.sqrt(variance)[:, None] * whole.scale
        degrees = np.repeat(pooled[:, None], self.count, axis=1)
        critical = critical_values(self.count, whole.correlation, degrees)
        apart = self._widen(flat, chance, least, error, degrees, critical)

        def shaped(one: NDArray[Any]) -> NDArray[Any]:
            return one.reshape((*values.shape[:-1], *one.shape[1:]))

        return Differences(
            change=shaped(whole.change),
            error=shaped(error),
            degrees=shaped(degrees),
            critical=shaped(critical),
            deviation=shaped(np.sqrt(variance)),
            pooled_degrees=shaped(pooled),
            apart=shaped(apart),
        )

    def fit(self, values: Floats) -> LeastSquares:
        """Return the least-squares fit of all rows. `values` is [comparisons, observations], on the log scale."""
        return self._fit(values, np.full(len(self._rows), True))

    def _deviation(self, values: Floats, apart: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Return (σ², its degrees of freedom) of each comparison, pooled over the rows that are not apart in it."""
        variance, degrees = np.empty(len(values)), np.empty(len(values))
        patterns, which = np.unique(apart, axis=0, return_inverse=True)
        for at, pattern in enumerate(patterns):
            some = which.ravel() == at
            found = self._fit(values[some], ~np.isin(self._rows, 1 + np.flatnonzero(pattern)))
            variance[some], degrees[some] = found.variance, found.degrees
        return variance, degrees

    def _widen(
        self, values: Floats, chance: Floats, least: Floats, error: Floats, degrees: Floats, critical: Floats
    ) -> NDArray[np.bool_]:
        """Give rows that deviate more an error that is in part their own, in place; return which rows those are."""
        apart = np.zeros(error.shape, dtype=bool)
        for row in range(self.count):
            own = self._by_block(values, row + 1)
            count = own.shape[-1]
            if count <= LEAST_DEGREES:
                continue
            part = _part(chance[:, row], self.count)
            by_itself = np.sqrt(np.maximum(own.var(axis=-1, ddof=1), least * self._expected(row + 1)) / count)
            mixed = error[:, row] ** (1 - part) * by_itself**part
            freedom = 1 / ((1 - part) / np.maximum(degrees[:, row], 1) + part / (count - 1))
            factor = critical_values(self.count, 0.0, freedom)
            here = (part > 0) & (factor * mixed > critical[:, row] * error[:, row])
            error[here, row], degrees[here, row], critical[here, row] = mixed[here], freedom[here], factor[here]
            apart[:, row] = here
        return apart

    def _chances(self, values: Floats, least: Floats) -> Floats:
        """Probability of each row's deviation if the row deviates as the others do: an F test.

        The fit without a row follows from the fit of all: RSS₋ᵣ = RSS − eᵣ'(I − Hᵣᵣ)⁺eᵣ, with the residuals e and the
        block Hᵣᵣ of the hat matrix at the row's observations.
        """
        from scipy.special import fdtrc

        matrix = self._matrix()
        hat = matrix @ np.linalg.pinv(matrix)
        residual = values - values @ hat.T
        squares, rank = (residual**2).sum(axis=-1), int(np.linalg.matrix_rank(matrix))
        found = np.ones((len(values), self.count))
        for row in range(1, self.count + 1):
            own, at = self._by_block(values, row), np.flatnonzero(self._rows == row)
            free = np.eye(len(at)) - hat[np.ix_(at, at)]
            degrees = len(matrix) - rank - int(np.linalg.matrix_rank(free, tol=_SINGULAR))
            if own.shape[-1] <= LEAST_DEGREES or degrees < LEAST_DEGREES:
                continue
            outside = residual[:, at]
            others = squares - ((outside @ np.linalg.pinv(free, rcond=_SINGULAR)) * outside).sum(axis=-1)
            usual = np.maximum(others / degrees, np.maximum(least, np.finfo(float).tiny)) * self._expected(row)
            found[:, row - 1] = fdtrc(own.shape[-1] - 1, degrees, own.var(axis=-1, ddof=1) / usual)
        return found

    def _matrix(self) -> Floats:
        """Return the design matrix: an indicator of each treatment, then of each block."""
        rows = self._rows[:, None] == np.arange(1, self.count + 1)
        blocks = self._blocks[:, None] == np.unique(self._blocks)
        return np.hstack([rows, blocks]).astype(float)

    def _fit(self, values: Floats, kept: NDArray[np.bool_]) -> LeastSquares:
        """Fit the kept observations with an indicator of each treatment and of each block."""
        matrix = self._matrix()[kept]
        inverse = np.linalg.pinv(matrix)
        fitted = values[:, kept] @ inverse.T
        residual = values[:, kept] - fitted @ matrix.T
        degrees = len(matrix) - int(np.linalg.matrix_rank(matrix))
        variance = (residual**2).sum(axis=-1) / degrees if degrees > 0 else np.full(len(values), np.nan)
        known = np.isclose(np.diag(inverse @ matrix)[: self.count], 1.0)
        both = np.outer(known, known)
        covariance = np.where(both, (inverse @ inverse.T)[: self.count, : self.count], np.nan)
        scale = np.sqrt(np.diag(covariance))
        pairs = both & ~np.eye(self.count, dtype=bool)
        correlation = float(np.clip((covariance / np.outer(scale, scale))[pairs].min(initial=1.0), 0.0, 0.99))
        return LeastSquares(
            np.where(known, fitted[:, : self.count], np.nan), covariance, scale, variance, degrees, correlation
        )

    def _by_block(self, values: Floats, row: int) -> Floats:
        """Difference between a row and the baseline in each block that has both: [comparisons, blocks]."""
        found = []
        for block in np.unique(self._blocks):
            own, control = ((self._blocks == block) & (self._rows == one) for one in (row, 0))
            if own.any() and control.any():
                found.append(values[:, own].mean(axis=-1) - values[:, control].mean(axis=-1))
        return np.stack(found, axis=-1) if found else np.empty((len(values), 0))

    def _expected(self, row: int) -> float:
        """Variance of a row's difference from the baseline in a block, at σ = 1."""
        sizes = [
            [int(((self._blocks == block) & (self._rows == one)).sum()) for one in (row, 0)]
            for block in np.unique(self._blocks)
        ]
        return float(np.mean([1 / own + 1 / control for own, control in sizes if own and control]))


def _part(chance: Floats, count: int) -> Floats:
    """Return how much of a row's error is its own: all below `WIDER`, and none from 2·k^−0.9 on, for k rows."""
    none = 2.0 / count**0.9
    below = np.log(none / np.maximum(chance, np.finfo(float).tiny))
    return np.asarray(np.clip(below / np.log(none / WIDER), 0.0, 1.0))


def _rounding(values: Floats) -> Floats:
    """Return the variance of rounding in each comparison, q²/12, with q the smallest difference of two values."""
    gaps = np.diff(np.sort(values, axis=-1), axis=-1)
    steps = np.where(gaps > _SAME, gaps, np.inf).min(axis=-1, initial=np.inf)
    return np.where(np.isfinite(steps), steps, 0.0) ** 2 / 12
