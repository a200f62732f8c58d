"""The parametric law L(N, D) = E + A/N^α + B/D^β (Hoffmann et al. 2022, approach 3).

E is the loss of an infinite model with infinite data. The logarithm of the law is a log-sum-exp of three linear terms.
The starts are the grid of that paper. Besiroglu et al. 2024 found that the first fit had stopped too early, and
repeated it; they also give the unrounded constants of the first. The rounded ones have another optimum.
"""

from itertools import product
from math import exp

import numpy as np

from assay.scaling.laws.base import Constant, Form, balance, columns, log_sum, slopes
from assay.scaling.points import Floats, Points

_GRID = (
    np.arange(-1.0, 1.1, 0.5),
    np.arange(0.0, 26.0, 5.0),
    np.arange(0.0, 26.0, 5.0),
    *(np.arange(0.0, 2.1, 0.5),) * 2,
)
"""Starts of log E, log A, log B, α and β in Hoffmann et al. 2022."""


class Hoffmann(Form):
    """E + A/N^α + B/D^β; its values are log E, log A, log B, α and β."""

    def log_losses(self, values: Floats, points: Points) -> tuple[Floats, Floats]:
        """Return log L and its slopes."""
        sizes, data = points.log("parameters"), points.log("tokens")
        e, a, b, alpha, beta = columns(values)
        total, (by_size, by_data, by_none) = log_sum(a - alpha * sizes, b - beta * data, e)
        return total, slopes(by_none, by_size, by_data, -by_size * sizes, -by_data * data)

    def starts(self, points: Points) -> Floats:
        """Return the grid of the paper."""
        return np.array(list(product(*_GRID)))

    def optimum(self, values: Floats, flops: float) -> tuple[float, float] | None:
        """Return the N and D of the lowest loss at a compute."""
        _, a, b, alpha, beta = values
        return balance((a, alpha), (b, beta), flops)


BESIROGLU = "Besiroglu 2024"
"""Source of the constants of Besiroglu et al. 2024, arXiv:2404.10102."""
UNROUNDED = "Hoffmann 2022, unrounded"
"""Source of the unrounded constants of Hoffmann et al., which Besiroglu et al. give."""
ROUNDED = "Hoffmann 2022, rounded"
"""Source of the constants that Hoffmann et al. print."""

LARGEST_FLOPS = 1.3e22
"""Largest compute, 6·N·D, of the points of figure 4 of Hoffmann et al."""

HOFFMANN = Hoffmann(
    name="hoffmann",
    formula="E + A/N^α + B/D^β",
    source="Hoffmann et al. 2022 (arXiv:2203.15556), approach 3; Besiroglu et al. 2024 (arXiv:2404.10102)",
    counts="N with embeddings; C = 6·N·D",
    constants=(
        Constant("E"),
        Constant("A"),
        Constant("B"),
        Constant("α", logarithmic=False),
        Constant("β", logarithmic=False),
    ),
    needs=("parameters", "tokens"),
    published={
        BESIROGLU: (1.8172, 482.01, 2085.43, 0.3478, 0.3658),
        UNROUNDED: (*map(exp, (0.5267228, 6.0073404, 6.0179186)), 0.33917084, 0.2849083),
        ROUNDED: (1.69, 406.4, 410.7, 0.34, 0.28),
    },
    reach=LARGEST_FLOPS,
)
