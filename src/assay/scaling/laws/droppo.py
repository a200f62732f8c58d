"""The law L(N, D) = [E^(1/γ) + (A/N^α)^(1/γ) + (B/D^β)^(1/γ)]^γ (Droppo and Elibol 2021).

It has the two usual laws as cases. With γ = 1 it is E + A/N^α + B/D^β of Hoffmann et al. 2022. Without E, and with
γ = β, it is the joint law of Kaplan et al. 2020. With a small γ the largest term has nearly all of the loss. So more
data help a small model less, once its size limits it. The paper writes A as N_C^α_N, B as D_C^α_D, and γ as α.

The law is for predictions, and its constants say little: points hardly identify γ, and γ decides what the others mean.
A fit keeps γ between 0 and 1. Beyond 1 losses differ little, but constants differ by orders of magnitude.
"""

from itertools import product

import numpy as np
from scipy.special import expit, logit

from assay.scaling.laws.base import Constant, Form, balance, columns, log_sum, slopes
from assay.scaling.points import Floats, Points

_FLOORS, _SHARES = (0.3, 0.7, 0.95), (0.3, 0.7)
"""E over the lowest loss, and either term over the mean loss at the middle of the points, where fits begin."""
_EXPONENTS, _JOINS = (0.1, 0.3, 0.7), (0.2, 0.5, 0.9)


class Droppo(Form):
    """The law with one more constant; its values are log E, log A, log B, α, β and log γ/(1 − γ)."""

    def log_losses(self, values: Floats, points: Points) -> tuple[Floats, Floats]:
        """Return log L and its slopes."""
        sizes, data = points.log("parameters"), points.log("tokens")
        e, a, b, alpha, beta, odds = columns(values)
        join = expit(odds)
        terms = np.broadcast_arrays(e, a - alpha * sizes, b - beta * data)
        total, (none, size, tokens) = log_sum(*(one / join for one in terms))
        losses = join * total
        mean = none * terms[0] + size * terms[1] + tokens * terms[2]
        return losses, slopes(none, size, tokens, -size * sizes, -tokens * data, (losses - mean) * (1 - join))

    def starts(self, points: Points) -> Floats:
        """Return a grid of floors, exponents, shares of the terms and ways to join them."""
        size, data = points.log("parameters").mean(), points.log("tokens").mean()
        level, found = np.log(points.loss).mean(), []
        grid = product(_FLOORS, _SHARES, _SHARES, _EXPONENTS, _EXPONENTS, _JOINS)
        for floor, by_size, by_data, alpha, beta, join in grid:
            a, b = level + np.log(by_size) + alpha * size, level + np.log(by_data) + beta * data
            found.append((np.log(floor * points.loss.min()), a, b, alpha, beta, logit(join)))
        return np.array(found)

    def optimum(self, values: Floats, flops: float) -> tuple[float, float] | None:
        """Return the N and D of the lowest loss at a compute: the outer power is monotone, so two terms balance."""
        _, a, b, alpha, beta, odds = values
        join = float(expit(odds))
        return balance((a / join, alpha / join), (b / join, beta / join), flops)


DROPPO = Droppo(
    name="droppo",
    formula="[E^(1/γ) + (A/N^α)^(1/γ) + (B/D^β)^(1/γ)]^γ",
    source="Droppo and Elibol 2021 (arXiv:2106.09488)",
    counts="N and C as the points count them",
    constants=(
        Constant("E"),
        Constant("A"),
        Constant("B"),
        Constant("α", logarithmic=False),
        Constant("β", logarithmic=False),
        Constant("γ", most=1.0, decides=True),
    ),
    needs=("parameters", "tokens"),
)
