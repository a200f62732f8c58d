"""Rankings by formulas that others published, as they were printed, each with its flaw.

Walsh 2023 ("Deep Learning Systems Lab 1") ranks fifteen runs of nanoGPT by

    Rank = Accuracy − RuntimeMax / Runtime − MemoryMax / Memory.

Its accuracy is a loss, and its memory a number of allocations. The rows of its table stand in ascending order of this
figure, so the lowest one is the best.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from assay.analysis.choices.criteria import Criterion, criteria
from assay.analysis.comparison import Comparison
from assay.analysis.row import seeds_of
from assay.records.study import BASELINE


class Measured(NamedTuple):
    """Figures of one row that formulas use."""

    loss: float
    seconds: float
    memory: float


class Formula(NamedTuple):
    """A published formula."""

    source: str
    text: str
    flaw: str
    """Sentences on what is wrong with it."""
    scores: Callable[[Mapping[str, Measured]], dict[str, float]]
    """Return the figure of each row; the lowest is the best."""


class FormulaRanking(NamedTuple):
    """Rows in the order of a formula."""

    formula: Formula
    scores: tuple[tuple[str, float], ...]
    """Rows with their figures, the best first; rows of equal figures by name."""


def walsh_2023(rows: Mapping[str, Measured]) -> dict[str, float]:
    """Return loss − longest time / time − largest memory / memory of each row."""
    longest, largest = max(one.seconds for one in rows.values()), max(one.memory for one in rows.values())
    return {name: one.loss - longest / one.seconds - largest / one.memory for name, one in rows.items()}


FORMULAS: Mapping[str, Formula] = MappingProxyType(
    {
        "walsh-2023": Formula(
            "Walsh, Deep Learning Systems Lab 1, 2023, equation 1",
            "Rank = loss − longest time / time − largest memory / memory; the lowest is the best",
            "The formula takes ratios away from a loss in nats, so its units do not match. Losses of useful rows lie "
            "within a few tenths, and the ratios grow without bound, so a fast row wins at almost any loss. The "
            "ratios are to the worst row: adding or removing a slow row changes the order of the others. Chance is "
            "not considered.",
            walsh_2023,
        )
    }
)
"""Published formulas by the name that a study's field `ranking` gives."""


def formula_ranking(comparison: Comparison) -> FormulaRanking | None:
    """Return the ranking by the formula that the study names; None without one, or if a figure is missing."""
    formula = FORMULAS.get(comparison.record.ranking or "")
    rows = _measured(comparison) if formula else {}
    if formula is None or not rows:
        return None
    return FormulaRanking(formula, tuple(sorted(formula.scores(rows).items(), key=lambda one: (one[1], one[0]))))


def _measured(comparison: Comparison) -> dict[str, Measured]:
    """Figures of the rows that finished at every seed of the control's; empty if one of the three was not measured.

    The formulas compare losses themselves, which differ between seeds.
    """
    every: dict[str, Criterion] = {one.name: one for one in criteria(comparison, varying=False)}
    if not {"loss", "time", "memory"} <= every.keys():
        return {}
    loss, time, memory = (every[name].figures for name in ("loss", "time", "memory"))
    seeds = {name: seeds_of(comparison.record.of(name)) for name in loss}
    alike = (name for name in loss if seeds[name] == seeds.get(BASELINE))
    return {name: Measured(loss[name], time[name], memory[name]) for name in alike}
