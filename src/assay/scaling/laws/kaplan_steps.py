"""The law of size and steps L(N, S_min) = (N_c/N)^α_N + (S_c/S_min)^α_S (Kaplan et al. 2020, equation 1.6).

S_min is the number of steps that a training would take at a batch far above the critical one, S/(1 + B_crit/B). It is a
column of its own, because it does not follow from N and D. Data do not limit: each token is new.
"""

from itertools import product

import numpy as np

from assay.scaling.laws.base import Constant, Form
from assay.scaling.laws.kaplan import KAPLAN, LARGEST_SIZE
from assay.scaling.laws.terms import columns, line, log_sum, slopes
from assay.scaling.points import Floats, Points


class KaplanSteps(Form):
    """The law of size and steps; its values are log N_c, log S_c, α_N and α_S."""

    def log_losses(self, values: Floats, points: Points) -> tuple[Floats, Floats]:
        """Return log L and its slopes."""
        sizes, steps = points.log("parameters"), points.log("min_steps")
        size, step, by_size, by_steps = columns(values)
        total, (share, other) = log_sum(by_size * (size - sizes), by_steps * (step - steps))
        return total, slopes(share * by_size, other * by_steps, share * (size - sizes), other * (step - steps))

    def starts(self, points: Points) -> Floats:
        """Return exponents around that of size, with scales at which steps have much or little of the loss."""
        sizes, steps = points.log("parameters"), points.log("min_steps")
        by_size, level = max(abs(line(sizes, points.loss)[1]), 0.02), np.log(points.loss).mean()
        found = [
            (
                sizes.mean() + (level + np.log(1 - part)) / (times * by_size),
                steps.mean() + (level + np.log(part)) / by_steps,
                times * by_size,
                by_steps,
            )
            for times, by_steps, part in product((0.5, 1.0, 2.0), (0.2, 0.5, 1.0), (0.1, 0.3, 0.6))
        ]
        return np.array(found)


KAPLAN_STEPS = KaplanSteps(
    name="kaplan-steps",
    formula="(N_c/N)^α_N + (S_c/S_min)^α_S",
    source="Kaplan et al. 2020 (arXiv:2001.08361), table 3",
    counts="N without embeddings; S_min = S/(1 + B_crit/B), a column of its own",
    constants=(
        Constant("N_c"),
        Constant("S_c"),
        Constant("α_N", logarithmic=False),
        Constant("α_S", logarithmic=False),
    ),
    needs=("parameters", "min_steps"),
    extent="parameters",
    published={KAPLAN: (6.5e13, 2.1e3, 0.077, 0.76)},
    reach=LARGEST_SIZE,
)
