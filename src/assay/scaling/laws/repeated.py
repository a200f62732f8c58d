"""Repeated data: E + A/N'^α + B/D'^β with effective sizes (Muennighoff et al. 2023, arXiv:2305.16264, section 3).

D' = U_D + U_D·R*_D·(1 − e^(−R_D/R*_D)), where U_D are the unique tokens and R_D = D/U_D − 1 the repetitions. Repeated
tokens are worth less with each epoch, and never more than U_D·R*_D new ones. N' is the same of parameters. There U_N is
the size that is optimal for U_D tokens by the law itself, and no more than N; R_N = N/U_N − 1.

The paper first fits the five constants to runs without repetition, and then R*_D and R*_N alone. Here all seven are
fitted at once. Runs that repeat little do not identify R*_D, and runs below the optimal size do not identify R*_N.
"""

from itertools import product
from math import exp

import numpy as np

from assay.scaling.laws.base import Constant, Form, columns, log_sum, slopes
from assay.scaling.laws.hoffmann import HOFFMANN
from assay.scaling.points import Floats, Points


class Repeated(Form):
    """The law of repeated data; its values are log E, log A, log B, α, β, log R*_D and log R*_N."""

    def log_losses(self, values: Floats, points: Points) -> tuple[Floats, Floats]:
        """Return log L and its slopes."""
        sizes, data = points.log("parameters"), points.log("tokens")
        unique = np.minimum(points.log("unique_tokens"), data)
        e, a, b, alpha, beta, half_data, half_sizes = columns(values)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            best = (np.log(alpha) + a + beta * unique - np.log(beta) - b) / alpha
            excess = best < sizes
            base = np.where(excess, best, sizes)
            size, by_base, by_half_sizes = _effective(base, sizes, half_sizes)
            tokens, _, by_half_data = _effective(unique, data, half_data)
            total, (by_size, by_data, by_none) = log_sum(a - alpha * size, b - beta * tokens, e)
            # The size that is optimal for the unique tokens moves with the constants.
            moved = np.where(excess, -alpha * by_size * by_base, 0.0) / alpha
        return total, slopes(
            by_none,
            by_size + moved,
            by_data - moved,
            -by_size * size + moved * (1 / alpha - best),
            -by_data * tokens + moved * (unique - 1 / beta),
            -beta * by_data * by_half_data,
            -alpha * by_size * by_half_sizes,
        )

    def starts(self, points: Points) -> Floats:
        """Return the grid of Hoffmann et al. around its likely part, with several values of R*_D and R*_N."""
        grid = product((-0.5, 0.5), (5.0, 10.0), (5.0, 10.0), (0.25, 0.5), (0.25, 0.5), (0.0, 2.5), (0.0, 2.5))
        return np.array(list(grid))


def _effective(base: Floats, whole: Floats, half: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the logarithm of an effective size, and its slopes by log U and log R*.

    `base`, `whole` and `half` are the logarithms of U, of the whole size and of R*.
    """
    most = np.exp(half)
    again = np.expm1(np.maximum(whole - base, 0.0))
    worth = np.exp(-again / most)
    growth = 1 + most * (1 - worth)
    by_base = 1 - (again + 1) * worth / growth
    return base + np.log(growth), by_base, (most * (1 - worth) - again * worth) / growth


MUENNIGHOFF = "Muennighoff 2023"
"""Source of the constants, in appendix A of the paper; α and β are one number there."""

REPEATED = Repeated(
    name="repeated",
    formula="E + A/N'^α + B/D'^β, D' = U_D + U_D·R*_D·(1 − e^(−R_D/R*_D)), N' likewise",
    source="Muennighoff et al. 2023 (arXiv:2305.16264)",
    counts="N as the points count it; C = 6·N·D; unique tokens are a column",
    constants=(*HOFFMANN.constants, Constant("R*_D"), Constant("R*_N")),
    needs=("parameters", "tokens", "unique_tokens"),
    published={MUENNIGHOFF: (*map(exp, (0.6254804, 6.255414, 7.3049974)), 0.3526596, 0.3526596, 15.387756, 5.309743)},
)
