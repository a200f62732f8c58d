"""Simulated comparisons through the analysis of the package: how often it says "differs", with and without an effect.

A process has an offset, and its blocks deviate around it, independently or as an AR(1) process. The figure of a process
is the mean of its blocks, and `assay.analysis.intervals` judges the figures, as in a real comparison. Drift that all
cells of a group share cancels exactly, and is left out.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from assay.analysis.intervals import Design, critical_value

BLOCKS = 5
BLOCK_DEVIATION = 0.02
CORRELATIONS = (0.0, 0.5, 0.9)
OFFSETS = (0.0, 0.01, 0.02, 0.03)
CHANGES = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2)


class Plan(NamedTuple):
    """Treatments, and processes of each row."""

    treatments: int
    processes: int

    @property
    def name(self) -> str:
        """In words."""
        plural = "s" if self.treatments > 1 else ""
        return f"{self.treatments} treatment{plural}, {self.processes} processes a row"

    def rows(self) -> NDArray[np.int_]:
        """The row of each process: in each group the baseline twice, then every treatment."""
        return np.array([0, 0, *range(1, self.treatments + 1)] * self.processes)

    def design(self) -> Design:
        """The design that the analysis makes of it."""
        groups = np.repeat(np.arange(self.processes), self.treatments + 2)
        return Design(list(self.rows()), list(groups))


PLANS = (Plan(1, 3), Plan(5, 3), Plan(5, 4), Plan(3, 6))
Row = dict[str, Any]


def figures(
    plan: Plan, families: int, offset: float, correlation: float, rng: np.random.Generator
) -> NDArray[np.floating[Any]]:
    """Mean log time of each process: [families, processes]."""
    shape = (families, len(plan.rows()))
    blocks = np.empty((*shape, BLOCKS))
    blocks[..., 0] = rng.normal(size=shape)
    for at in range(1, BLOCKS):
        fresh = rng.normal(size=shape)
        blocks[..., at] = correlation * blocks[..., at - 1] + np.sqrt(1 - correlation**2) * fresh
    return offset * rng.normal(size=shape) + BLOCK_DEVIATION * blocks.mean(axis=-1)


def share_that_differs(plan: Plan, values: NDArray[np.floating[Any]]) -> tuple[float, float]:
    """Shares of families in which any treatment is said to differ, and in which the first one is."""
    found = plan.design().differences(values).differs
    return float(found.any(axis=-1).mean()), float(found[:, 0].mean())


def share_by_pooling(plan: Plan, values: NDArray[np.floating[Any]]) -> float:
    """Share of families in which the first treatment would differ, if rows were known to deviate alike."""
    fit = plan.design().fit(values)
    half = critical_value(plan.treatments, fit.correlation, fit.degrees) * np.sqrt(fit.variance) * fit.scale[0]
    return float((np.abs(fit.change[:, 0]) > half).mean())


def false_positives(families: int) -> Iterator[Row]:
    """Nothing has an effect: a row for each correlation, offset and plan."""
    for correlation in CORRELATIONS:
        for offset in OFFSETS:
            for plan in PLANS:
                rng = _generator(1, plan, offset, correlation)
                any_row, _ = share_that_differs(plan, figures(plan, families, offset, correlation, rng))
                yield {"correlation": correlation, "offset": offset, "plan": plan.name, "share": any_row}


def power(families: int) -> Iterator[Row]:
    """The first treatment has an effect: a row for each change, offset and plan."""
    for offset in OFFSETS:
        for change in CHANGES:
            for plan in PLANS:
                values = figures(plan, families, offset, 0.0, _generator(2, plan, offset, change))
                values += np.where(plan.rows() == 1, np.log1p(change), 0.0)
                _, first = share_that_differs(plan, values)
                pooled = share_by_pooling(plan, values)
                yield {"offset": offset, "change": change, "plan": plan.name, "share": first, "pooled": pooled}


def unequal(families: int) -> Iterator[Row]:
    """Nothing has an effect, and the processes of one treatment deviate more than all others."""
    for factor in (1.0, 2.0, 3.0, 10.0):
        for plan in PLANS:
            values = figures(plan, families, 0.02, 0.0, _generator(3, plan, factor, 0.0))
            values = values * np.where(plan.rows() == 1, factor, 1.0)
            any_row, _ = share_that_differs(plan, values)
            yield {"factor": factor, "plan": plan.name, "share": any_row}


def _generator(table: int, plan: Plan, *setting: float) -> np.random.Generator:
    """Each row has random numbers of its own, so that it repeats whatever else is simulated."""
    return np.random.default_rng([table, *plan, *(round(1000 * one) for one in setting)])


def table(rows: Sequence[Row], by: Sequence[str]) -> list[str]:
    """A Markdown table of shares: a line for each setting of `by`, a column a plan."""
    plans = list(dict.fromkeys(row["plan"] for row in rows))
    lines = [f"| {' | '.join((*by, *plans))} |", f"|{' --- |' * (len(by) + len(plans))}"]
    for setting in dict.fromkeys(tuple(row[name] for name in by) for row in rows):
        shares = {row["plan"]: _share(row) for row in rows if tuple(row[name] for name in by) == setting}
        words = [_word(name, value) for name, value in zip(by, setting, strict=True)]
        lines.append(f"| {' | '.join((*words, *(shares[plan] for plan in plans)))} |")
    return lines


def _share(row: Row) -> str:
    """A share in percent, with that of a simpler rule in parentheses, and with the share that is refused."""
    simpler = f" ({100 * row['pooled']:.1f} %)" if "pooled" in row else ""
    refused = f", refused {100 * row['refused']:.1f} %" if row.get("refused") else ""
    return f"{100 * row['share']:.1f} %{simpler}{refused}"


def _word(name: str, value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{100 * value:g} %" if name in ("offset", "change", "width") else f"{value:g}"
