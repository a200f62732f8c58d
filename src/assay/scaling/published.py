"""Published answers to the question how large a model and how much data make the most of a compute budget.

Each has its own way to count. Kaplan's N has no embeddings, and its C_min is the compute of training at a small batch,
about half of what a run spends. Hoffmann's N has embeddings, and C = 6·N·D.

Of the approaches of Hoffmann et al. the paper has tables of optima (tables 3 and A3). A line is drawn through the
logarithms of their rows. The constants of approach 3 are rounded in the paper, which changes its optimum. Besiroglu et
al. give the unrounded ones. Their optimum still has 6 to 15 % more tokens than the table.

Intervals are of 80 %. Table 2 of Hoffmann et al. has the 10th and the 90th percentile of the exponent of N, of
bootstraps. That of approach 3, 0.454 to 0.455, does not contain its own 0.46, and Besiroglu et al. find it far too
narrow. It is left out. Theirs follows from 10,000 draws of α and β with the standard errors 0.015 and 0.021.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from assay.scaling.frontier import Frontier, Minimum, Optimum, OptimumCurve, Reach, Spread, Tilted
from assay.scaling.laws import HOFFMANN, Law
from assay.scaling.laws.hoffmann import BESIROGLU as _BESIROGLU
from assay.scaling.laws.hoffmann import LARGEST_FLOPS as _OF_POINTS
from assay.scaling.laws.hoffmann import ROUNDED, UNROUNDED
from assay.scaling.laws.kaplan import LARGEST_FLOPS, PETAFLOP_DAY
from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN


@dataclass(frozen=True)
class Line:
    """Tokens as a power of parameters, through the rows of a table."""

    rows: tuple[tuple[float, float], ...]
    """(N, D) of each row."""

    def at(self, flops: float) -> Optimum:
        """Return the optimum of a budget of training FLOPs."""
        sizes, data = np.log(np.array(self.rows)).T
        power, level = np.polyfit(sizes, data, 1)
        each = np.log(flops / FLOPS_PER_PARAMETER_AND_TOKEN)
        parameters = float(np.exp((each - level) / (1 + power)))
        return Optimum(parameters, flops / FLOPS_PER_PARAMETER_AND_TOKEN / parameters, flops, None)


@dataclass(frozen=True)
class Kaplan:
    """N = 1.3e9 · C_min^0.73 with C_min in PF-days (Kaplan et al. 2020, section 6.1)."""

    share: float
    """C_min over the training FLOPs."""

    def at(self, flops: float) -> Optimum:
        """Return the optimum of a budget of training FLOPs."""
        parameters = 1.3e9 * (self.share * flops / PETAFLOP_DAY) ** 0.73
        return Optimum(parameters, flops / FLOPS_PER_PARAMETER_AND_TOKEN / parameters, flops, None)


_HOFFMANN = "Hoffmann et al. 2022 (arXiv:2203.15556)"
_KAPLAN = "Kaplan et al. 2020 (arXiv:2001.08361), N without embeddings"
_PERCENTILES = "10th to 90th percentile of the exponent (Hoffmann et al. 2022, table 2)"
_HELD = 6e18
"""FLOPs at which lines with other exponents agree: the smallest budget of approach 2."""

_BUDGETS = Reach(_HELD, 3e21, "the budgets of approach 2, 6e18 to 3e21 FLOPs")
_RUNS = Reach(
    1.4e18, _OF_POINTS, "runs of 1.4e18 to 1.3e22 FLOPs, 6·N·D of the points of figure 4 of Hoffmann et al. 2022"
)
_KAPLANS = Reach(
    None,
    LARGEST_FLOPS,
    "runs of up to 1.2e21 FLOPs (1.5 billion parameters, 250,000 steps of 512 sequences of 1,024 tokens)",
)

BESIROGLU = HOFFMANN.known(_BESIROGLU)
"""Law of Besiroglu et al. 2024."""
_ERRORS = {"α": 0.015, "β": 0.021}
"""Standard errors of its exponents."""


def _between(curve: OptimumCurve, low: float, high: float, source: str) -> Spread:
    return Spread((Tilted(curve, low, _HELD), Tilted(curve, high, _HELD)), 0.8, source, ends=True)


def _approach(rows: tuple[tuple[float, float], ...], name: str, ends: tuple[float, float] | None = None) -> Frontier:
    line = Line(rows)
    spread = None if ends is None else _between(line, *ends, _PERCENTILES)
    return Frontier(line, f"{_HOFFMANN}, {name}", _BUDGETS if ends else _RUNS, spread)


def _minimum(law: Law, source: str, spread: Spread | None = None) -> Frontier:
    return Frontier(Minimum(law), source, _RUNS, spread, law)


def _sampled() -> Spread:
    """Return the spread of the exponent β/(α + β), with α and β drawn on their own."""
    chance = np.random.default_rng(0)
    alpha, beta = (chance.normal(BESIROGLU.printed[symbol], error, 10_000) for symbol, error in _ERRORS.items())
    low, high = np.quantile(beta / (alpha + beta), (0.1, 0.9))
    source = "10th to 90th percentile of the exponent, α and β drawn with their standard errors"
    return _between(Minimum(BESIROGLU), float(low), float(high), source)


FRONTIERS: Mapping[str, Frontier] = {
    "Hoffmann 1": _approach(
        ((1e9, 20.2e9), (10e9, 205.1e9), (67e9, 1.5e12), (175e9, 3.7e12), (1e12, 21.2e12)),
        "approach 1, the envelope of training curves",
        (0.488, 0.502),
    ),
    "Hoffmann 2": _approach(
        ((1e9, 20.0e9), (10e9, 219.5e9), (67e9, 1.7e12), (175e9, 4.3e12), (1e12, 26.5e12)),
        "approach 2, parabolas at equal compute",
        (0.462, 0.534),
    ),
    "Hoffmann 3": _approach(
        ((1e9, 27.1e9), (10e9, 410.1e9), (67e9, 4.1e12), (175e9, 12.0e12), (1e12, 94.1e12)),
        "approach 3, the parametric law, by its table, which Besiroglu et al. 2024 could not repeat",
    ),
    "Hoffmann 3, unrounded": _minimum(
        HOFFMANN.known(UNROUNDED),
        f"{_HOFFMANN}, approach 3, with the unrounded constants of Besiroglu et al. 2024",
    ),
    "Hoffmann 3, rounded": _minimum(
        HOFFMANN.known(ROUNDED),
        f"{_HOFFMANN}, approach 3, with its rounded constants, which are too coarse for an optimum; prefer Besiroglu",
    ),
    "Besiroglu": _minimum(BESIROGLU, "Besiroglu et al. 2024 (arXiv:2404.10102), approach 3 repeated", _sampled()),
    "Kaplan, C_min = C/2": Frontier(Kaplan(0.5), f"{_KAPLAN}; half of the training compute counts", _KAPLANS),
    "Kaplan, C_min = C": Frontier(Kaplan(1.0), f"{_KAPLAN}; all of the training compute counts", _KAPLANS),
}
"""Published optima, by the name of their law."""
