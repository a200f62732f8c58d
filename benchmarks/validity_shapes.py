"""Simulated chance that is not normal, through the analysis of the package: of processes, and of losses over seeds.

Processes: nothing has an effect, so each treatment that is said to differ is an error. Some or all processes have a
deviation with heavy tails, with skewness, with outliers, by drift within a wave, or of another size in one row. Some
figures are rounded.

Losses: the differences of each row over paired seeds have a median that is known. An interval that lacks it is an
error. All rows of a family have differences of the same shape. A refusal is counted by itself, and is no error.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.analysis.effects import loss
from validity_simulated import BLOCKS, PLANS, Plan, Row, share_that_differs

Values = NDArray[np.floating[Any]]
DEVIATION = 0.02
"""Of a process, on the log scale."""
SEEDS = (3, 4, 5, 6, 10, 20, 50)
ROWS = (1, 5)
LOSS, SCALE = 2.5, 0.01
"""Loss of the baseline, and scale of the differences of a treatment."""


def _drifting(plan: Plan, rng: np.random.Generator, shape: tuple[int, int]) -> Values:
    """The machine slows by a hundredth with every timed block of a wave, whose order is shuffled in each round."""
    cells = plan.treatments + 2
    order = rng.random((shape[0], plan.processes, BLOCKS, cells)).argsort(axis=-1)
    drift = 0.01 * (order + cells * np.arange(BLOCKS)[:, None]).mean(axis=2)
    return DEVIATION * rng.normal(size=shape) + drift.reshape(shape)


def _with_outliers(rng: np.random.Generator, shape: tuple[int, int], where: NDArray[np.bool_]) -> Values:
    slow = (rng.random(shape) < 0.05) & where
    return DEVIATION * rng.normal(size=shape) + np.log(1.3) * slow


def _unequal(plan: Plan, rng: np.random.Generator, shape: tuple[int, int], factor: float, row: int) -> Values:
    return DEVIATION * rng.normal(size=shape) * np.where(plan.rows() == row, factor, 1.0)


def _rounded(rng: np.random.Generator, shape: tuple[int, int], step: float) -> Values:
    whole = rng.normal(size=shape) / step + rng.random((shape[0], 1))
    return np.asarray(DEVIATION * step * np.round(whole))


Maker = Callable[[Plan, np.random.Generator, tuple[int, int]], Values]
PROCESSES: dict[str, Maker] = {
    "normal": lambda plan, rng, shape: DEVIATION * rng.normal(size=shape),
    "t with 3 degrees of freedom": lambda plan, rng, shape: DEVIATION * rng.standard_t(3, size=shape),
    "lognormal, σ = 1": lambda plan, rng, shape: DEVIATION * rng.lognormal(size=shape),
    "5 % of processes × 1.3": lambda plan, rng, shape: _with_outliers(rng, shape, plan.rows() >= 0),
    "the same, in one row only": lambda plan, rng, shape: _with_outliers(rng, shape, plan.rows() == 1),
    "drift within a wave": _drifting,
    "one row deviates × 2": lambda plan, rng, shape: _unequal(plan, rng, shape, 2, 1),
    "one row deviates × 3": lambda plan, rng, shape: _unequal(plan, rng, shape, 3, 1),
    "one row deviates × 10": lambda plan, rng, shape: _unequal(plan, rng, shape, 10, 1),
    "the baseline deviates × 3": lambda plan, rng, shape: _unequal(plan, rng, shape, 3, 0),
    "rounded to 1 deviation": lambda plan, rng, shape: _rounded(rng, shape, 1),
    "rounded to 2 deviations": lambda plan, rng, shape: _rounded(rng, shape, 2),
    "rounded to 5 deviations": lambda plan, rng, shape: _rounded(rng, shape, 5),
}

NARROWED = ("normal", "t with 3 degrees of freedom", "one row deviates × 3", "one row deviates × 10")
WIDTHS = (1.0, 0.97, 0.94, 0.9)
"""Widths of intervals, relative to those that a comparison prints."""

Draw = Callable[[np.random.Generator, tuple[int, ...]], Values]
LOSSES: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, shape: rng.normal(size=shape), 0.0),
    "t with 3 degrees of freedom": (lambda rng, shape: rng.standard_t(3, size=shape), 0.0),
    "lognormal, σ = 1": (lambda rng, shape: rng.lognormal(size=shape), 1.0),
    "exponential": (lambda rng, shape: rng.exponential(size=shape), float(np.log(2))),
    "2 % of seeds 10 deviations off": (lambda rng, shape: _off(rng, shape, 0.02), 0.025581),
    "10 % of seeds 10 deviations off": (lambda rng, shape: _off(rng, shape, 0.1), 0.139710),
    "rounded to 1 deviation": (lambda rng, shape: np.round(rng.normal(size=shape)), 0.0),
    "rounded to 2 deviations": (lambda rng, shape: 2 * np.round(rng.normal(size=shape) / 2), 0.0),
    "rounded to 5 deviations": (lambda rng, shape: 5 * np.round(rng.normal(size=shape) / 5), 0.0),
    "equal at all seeds": (lambda rng, shape: np.ones(shape), 0.0),
}
"""Differences of seeds in units of their scale, and their median over all seeds.

Differences that are equal at all seeds belong to rare large ones that the seeds lack. With these the median is any.
"""


def _off(rng: np.random.Generator, shape: tuple[int, ...], share: float) -> Values:
    return rng.normal(size=shape) + 10 * (rng.random(shape) < share)


def of_processes(families: int) -> Iterator[Row]:
    """Shares of families in which any treatment is said to differ: a row for each shape and plan."""
    for at, (shape, make) in enumerate(PROCESSES.items()):
        for plan in PLANS:
            values = make(plan, np.random.default_rng([4, at, *plan]), (families, len(plan.rows())))
            yield {"chance": shape, "plan": plan.name, "share": share_that_differs(plan, values)[0]}


def of_narrower_intervals(families: int) -> Iterator[Row]:
    """Shares of families as in `of_processes`, if intervals were narrower: a row for each shape, width and plan."""
    for shape in NARROWED:
        at, make = list(PROCESSES).index(shape), PROCESSES[shape]
        for width in WIDTHS:
            for plan in PLANS:
                values = make(plan, np.random.default_rng([4, at, *plan]), (families, len(plan.rows())))
                found = plan.design().differences(values)
                wrong = (np.abs(found.change) > width * found.half_width).any(axis=-1)
                yield {"chance": shape, "width": width, "plan": plan.name, "share": float(wrong.mean())}


def of_losses(families: int) -> Iterator[Row]:
    """Shares of families with an error, and of intervals that are refused: a row for each shape, seeds and rows."""
    for at, (shape, (draw, median)) in enumerate(LOSSES.items()):
        for count in SEEDS:
            for rows in ROWS:
                drawn = draw(np.random.default_rng([5, at, count, rows]), (families, rows, count))
                found = np.array([[judged(one, median, rows) for one in family] for family in drawn.tolist()])
                wrong, refused = found[..., 0].any(axis=1).mean(), found[..., 1].mean()
                yield {
                    "chance": shape,
                    "plan": f"{rows} row{'s' if rows > 1 else ''}, {count} seeds",
                    "share": float(wrong),
                    "refused": float(refused),
                }


def power_of_losses(families: int) -> Iterator[Row]:
    """Share of normal rows whose true change is found, beside that of Student's t alone."""
    for count in SEEDS:
        for rows in ROWS:
            some = max(1, min(families, 4000))
            for change in (1.0, 2.0, 3.0):
                drawn = np.random.default_rng([6, count, rows]).normal(size=(some, count)) + change
                found = np.mean([judged(one, 0.0, rows)[0] for one in drawn.tolist()])
                half = student_half(drawn, rows)
                alone = float((np.abs(drawn.mean(axis=1)) > half).mean())
                yield {
                    "change": f"{change:g} × the deviation",
                    "plan": f"{rows} row{'s' if rows > 1 else ''}, {count} seeds",
                    "share": float(found),
                    "pooled": alone,
                }


def student_half(values: Values, rows: int) -> Values:
    """Half width of Student's interval of each row of values, with Bonferroni's level."""
    from scipy.special import stdtrit

    count = values.shape[-1]
    factor = float(stdtrit(count - 1, 1 - 0.05 / (2 * rows)))
    return np.asarray(factor * values.std(axis=-1, ddof=1) / np.sqrt(count))


def judged(differences: list[float], median: float, rows: int) -> tuple[bool, bool]:
    """Whether the interval of a row lacks the median, and whether there is none."""
    found = loss([[(LOSS, LOSS + SCALE * one)] for one in differences], rows)
    if found is None or (found.interval is None and not found.equal):
        return False, True
    low, high = found.interval or (found.change, found.change)
    return not low <= SCALE * median / LOSS <= high, False
