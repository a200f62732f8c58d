"""The critical batch size: how many steps and examples a batch size takes to the same loss.

A training reaches a loss in S steps of B examples, E = S·B examples in all (arXiv:1812.06162, equation 2.11):

    (S/S_min − 1) · (E/E_min − 1) = 1,  so  S = S_min·(1 + B_crit/B)  and  E = E_min·(1 + B/B_crit)

B_crit = E_min/S_min takes twice the fewest steps and twice the fewest examples. It is about the gradient noise scale,
which is measured at one checkpoint and grows while the loss falls. It also follows from a loss, by Kaplan et al. 2020
(arXiv:2001.08361): B_crit = B*/L^(1/α_B) tokens, for their text and tokenizer. Measured steps at several batch sizes
give it directly. They are fitted by least squares of log S, and Student's t gives the interval.

The law L(N, S_min) of Kaplan et al. needs B_crit at the loss that it predicts, so this loss is a fixed point.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, log2, sqrt
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from scipy.optimize import brentq, least_squares
from scipy.stats import t

from assay.errors import UsageError
from assay.scaling.laws.kaplan import KAPLAN, KAPLAN_STEPS
from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN, Floats, planned_points
from assay.scaling.points_file import read_table

Interval = tuple[float, float]

LEVEL = 0.95
_NORMAL = 1.96
KAPLAN_TOKENS, KAPLAN_EXPONENT = 2.1e8, 0.21
"""B* in tokens and α_B (Kaplan et al. 2020, figure 10; their text rounds B* to 2e8)."""
LEAST_BATCHES = 3
"""Batch sizes of a fit with an error."""
_MOST_APART = 1e4
"""Factor between a fitted critical batch size and the measured batch sizes, at most."""
_AT_END = 1.0
"""Distance from that factor, in the logarithm, at which a fit has no critical batch size."""
IDENTIFIED = 10.0
"""Largest ratio of the ends of an interval for which measured steps identify the critical batch size."""
_AROUND = 4
"""Doublings and halvings of the critical batch size that are listed by default."""


@dataclass(frozen=True)
class Critical:
    """A critical batch size."""

    size: float
    unit: str
    """Examples: sequences, tokens, or examples of the user's own."""
    source: str
    interval: Interval | None = None
    """95 % interval; None if no error is known."""
    least_steps: float | None = None
    """S_min, where it was fitted."""
    measured: Interval | None = None
    """Smallest and largest batch size of the measured steps, where it was fitted."""

    @property
    def one_sided(self) -> Literal["below", "above"] | None:
        """Side of the critical batch size on which all measured ones are; None if they are on both, or unknown."""
        if self.measured is None or self.measured[0] <= self.size <= self.measured[1]:
            return None
        return "below" if self.measured[1] < self.size else "above"

    def steps(self, batch: float) -> float:
        """Return S/S_min at a batch size."""
        return 1 + self.size / batch

    def examples(self, batch: float) -> float:
        """Return E/E_min at a batch size."""
        return 1 + batch / self.size


class KnownSteps(NamedTuple):
    """A run whose steps are known, from which those at other batch sizes follow."""

    batch: float
    steps: float
    step_seconds: float | None = None


class BatchRow(NamedTuple):
    """Steps and examples of one batch size to the same loss."""

    batch: float
    steps: float
    """S/S_min."""
    examples: float
    """E/E_min."""
    step_count: float | None
    example_count: float | None
    seconds: float | None
    """Time on the same devices, if a step takes as much longer as its batch is larger."""
    seconds_in_proportion: float | None
    """Time on devices in proportion to the batch, if a step takes as long as now."""


class PredictedSteps(NamedTuple):
    """A run whose loss a law of size and steps predicts."""

    parameters: float
    steps: float
    batch: float
    """Tokens."""
    loss: float
    least_steps: float
    """S_min."""
    flops: float
    least_flops: float
    """C_min."""


@dataclass(frozen=True)
class Batching:
    """A critical batch size, and what batch sizes around it take."""

    critical: Critical
    rows: tuple[BatchRow, ...]
    present: KnownSteps | None = None
    planned: PredictedSteps | None = None


def from_noise(scale: float, error: float | None, unit: str, source: str) -> Critical:
    """Return the critical batch size of a noise scale; its interval is symmetric in the logarithm."""
    if error is None:
        return Critical(scale, unit, source)
    if error >= scale:
        raise UsageError(f"a noise scale of {scale:g} ± {error:g} is not known; measure it with more micro-batches")
    spread = exp(min(_NORMAL * error / scale, 700.0))
    return Critical(scale, unit, source, (scale / spread, scale * spread))


def at_loss(loss: float) -> Critical:
    """Return the critical batch size at a loss in nats per token, by Kaplan et al."""
    return Critical(kaplan(loss), "tokens", "Kaplan et al. 2020 (arXiv:2001.08361), B* = 2.1e8 tokens, α_B = 0.21")


def kaplan(loss: float) -> float:
    """Return B*/L^(1/α_B) in tokens."""
    return float(KAPLAN_TOKENS / loss ** (1 / KAPLAN_EXPONENT))


def kaplan_loss(parameters: float, least_steps: float) -> float:
    """Return L(N, S_min) by the published constants of Kaplan et al.; N is without embeddings."""
    law = KAPLAN_STEPS.known(KAPLAN)
    return float(law.losses(planned_points(parameters=parameters, min_steps=least_steps))[0])


def fit(batches: Sequence[float], steps: Sequence[float]) -> Critical:
    """Fit the critical batch size to steps that reached one loss at several batch sizes; at least three differ."""
    sizes, logs = np.asarray(batches, dtype=float), np.log(np.asarray(steps, dtype=float))

    def residuals(values: Floats) -> Floats:
        return np.asarray(values[0] + np.log1p(np.exp(values[1]) / sizes) - logs)

    def slopes(values: Floats) -> Floats:
        share = 1 / (1 + sizes / np.exp(values[1]))
        return np.stack((np.ones_like(sizes), share), axis=1)

    bounds = ([-np.inf, log(sizes.min() / _MOST_APART)], [np.inf, log(sizes.max() * _MOST_APART)])
    start = (logs.min(), np.log(sizes).mean())
    found = least_squares(residuals, start, slopes, bounds, xtol=1e-14, ftol=1e-14)
    level, size = map(float, found.x)
    _check_within(size, sizes)
    freedom = len(sizes) - 2
    covariance = np.linalg.pinv(found.jac.T @ found.jac) * 2 * found.cost / freedom
    spread = exp(min(float(t.ppf((1 + LEVEL) / 2, freedom)) * sqrt(float(covariance[1, 1])), 300.0))
    source = f"fitted to {len(sizes)} measured batch sizes"
    ends = (exp(size) / spread, exp(size) * spread)
    return Critical(exp(size), "examples", source, ends, exp(level), (float(sizes.min()), float(sizes.max())))


def _check_within(size: float, sizes: Floats) -> None:
    """Raise `UsageError` if the log of a fitted critical batch size is at an end of what was tried."""
    if size - log(sizes.min() / _MOST_APART) < _AT_END:
        raise UsageError("the steps do not fall with the batch size, so it is above the critical one; measure smaller")
    if log(sizes.max() * _MOST_APART) - size < _AT_END:
        raise UsageError(
            "the steps fall in proportion to the batch size, so it is far below the critical one; measure larger"
        )


def planned_run(law: Callable[[float, float], float], parameters: float, steps: float, batch: float) -> PredictedSteps:
    """Return a run of N parameters and S steps of B tokens, with the loss that L(N, S_min) predicts for it."""

    def least(loss: float) -> float:
        return steps / (1 + kaplan(loss) / batch)

    lowest = law(parameters, steps)
    loss = float(brentq(lambda one: law(parameters, least(one)) - one, lowest, max(1e3, 10 * lowest), xtol=1e-12))
    flops = FLOPS_PER_PARAMETER_AND_TOKEN * parameters * batch * steps
    return PredictedSteps(parameters, steps, batch, loss, least(loss), flops, flops / (1 + batch / kaplan(loss)))


def rows(critical: Critical, batches: Iterable[float], present: KnownSteps | None) -> tuple[BatchRow, ...]:
    """Return what batch sizes take: relative to the least, and in counts if a run or S_min is known."""
    least = critical.least_steps if present is None else present.steps / critical.steps(present.batch)
    return tuple(_row(critical, batch, least, present) for batch in batches)


def _row(critical: Critical, batch: float, least: float | None, present: KnownSteps | None) -> BatchRow:
    relative = critical.steps(batch)
    steps = None if least is None else least * relative
    each = None if present is None else present.step_seconds
    seconds = None if each is None or steps is None else each * steps
    return BatchRow(
        batch=batch,
        steps=relative,
        examples=critical.examples(batch),
        step_count=steps,
        example_count=None if steps is None else steps * batch,
        seconds=None if seconds is None or present is None else seconds * batch / present.batch,
        seconds_in_proportion=seconds,
    )


def around(critical: Critical) -> tuple[float, ...]:
    """Return powers of two around a critical batch size, none below 1."""
    middle = round(log2(critical.size))
    return tuple(2.0**power for power in range(max(0, middle - _AROUND), max(0, middle + _AROUND) + 1))


_NAMES: Mapping[str, tuple[str, ...]] = {
    "batch": ("batch", "batch_size", "batch size", "b"),
    "steps": ("steps", "s", "training steps"),
}
"""Headings by which a column is known, in lower case."""
_LEAST, _MOST = 1.0, 1e20


def read_steps(path: Path) -> tuple[list[float], list[float]]:
    """Return batch sizes and steps.

    Raises `UsageError` with one sentence if the file cannot be read, lacks a column, has an impossible number, or too
    few batch sizes.
    """
    table = read_table(path, "batch sizes and steps")
    named = table.headings(_NAMES)
    if len(named) < len(_NAMES):
        raise UsageError(f"{path} needs the columns batch and steps: steps to one loss at several batch sizes")
    batches, steps = (table.numbers(named[kind], _LEAST, _MOST) for kind in _NAMES)
    different = len(set(batches))
    if different < LEAST_BATCHES:
        raise UsageError(
            f"{path} has {different} batch size{'s' if different > 1 else ''}; a critical batch size needs "
            f"{LEAST_BATCHES}, far apart, each with its steps to the same loss"
        )
    return batches, steps
