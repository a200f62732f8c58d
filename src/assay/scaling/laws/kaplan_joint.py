"""The joint law L(N, D) = [(N_c/N)^(α_N/α_D) + D_c/D]^α_D (Kaplan et al. 2020, equation 1.5).

It has no irreducible loss. Without limit of data it becomes (N_c/N)^α_N, and without limit of size (D_c/D)^α_D. Its
constants are a fit of their own: those of L(N) and L(D) alone differ, and must not be put into it.
"""

from itertools import product

import numpy as np

from assay.scaling.laws.base import Constant, Form
from assay.scaling.laws.kaplan import KAPLAN, LARGEST_FLOPS
from assay.scaling.laws.terms import balance, columns, line, log_sum, slopes
from assay.scaling.points import Floats, Points


class KaplanJoint(Form):
    """The joint law; its values are log N_c, log D_c, α_N and α_D."""

    def log_losses(self, values: Floats, points: Points) -> tuple[Floats, Floats]:
        """Return log L and its slopes."""
        sizes, data = points.log("parameters"), points.log("tokens")
        size, tokens, by_size, by_data = columns(values)
        ratio = by_size / by_data
        total, (share, other) = log_sum(ratio * (size - sizes), tokens - data)
        return by_data * total, slopes(
            share * by_size, other * by_data, share * (size - sizes), total - share * ratio * (size - sizes)
        )

    def starts(self, points: Points) -> Floats:
        """Return exponents around those of lines, with scales at which either term has much or little of the loss."""
        sizes, data = points.log("parameters"), points.log("tokens")
        by_size, by_data = (max(abs(line(logs, points.loss)[1]), 0.02) for logs in (sizes, data))
        level, found = np.log(points.loss).mean(), []
        for times, size, tokens in product((0.5, 1.0, 2.0), (0.2, 0.5, 0.8), (0.2, 0.5, 0.8)):
            alpha, beta = times * by_size, times * by_data
            scale = sizes.mean() + (level + beta * np.log(size)) / alpha
            found.append((scale, data.mean() + level / beta + np.log(tokens), alpha, beta))
        return np.array(found)

    def optimum(self, values: Floats, flops: float) -> tuple[float, float] | None:
        """Return the N and D of the lowest loss at a compute: the outer power is monotone, so two balance."""
        size, tokens, by_size, by_data = values
        ratio = by_size / by_data
        return balance((ratio * size, ratio), (tokens, 1.0), flops)


KAPLAN_JOINT = KaplanJoint(
    name="kaplan-joint",
    formula="[(N_c/N)^(α_N/α_D) + D_c/D]^α_D",
    source="Kaplan et al. 2020 (arXiv:2001.08361), table 2",
    counts="N without embeddings; early stopping; C = 6·N·D",
    constants=(
        Constant("N_c"),
        Constant("D_c"),
        Constant("α_N", logarithmic=False),
        Constant("α_D", logarithmic=False),
    ),
    needs=("parameters", "tokens"),
    published={KAPLAN: (6.4e13, 1.8e13, 0.076, 0.103)},
    reach=LARGEST_FLOPS,
)
