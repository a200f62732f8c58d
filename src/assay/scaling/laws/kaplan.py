"""Laws of Kaplan et al. 2020: power laws of one quantity, the joint law of size and data, and that of size and steps.

L(N) is the loss of a model that trains to convergence, and L(D) that of a large model with early stopping. L(C) is the
lowest loss of a compute at one batch size, and L(C_min) at a batch far below the critical one. Each was fitted alone.
Their constants are not those of the joint laws L(N, D) and L(N, S), although they share symbols.

Losses are in nats per token of WebText2, so x_c depends on the tokenizer. N has no embeddings.

The joint law has no irreducible loss. Without limit of data it becomes (N_c/N)^α_N, and without limit of size
(D_c/D)^α_D. Its constants are a fit of their own: those of L(N) and L(D) alone differ, and must not be put into it.

S_min is the number of steps that a training would take at a batch far above the critical one, S/(1 + B_crit/B). It is a
column of its own, because it does not follow from N and D. Data do not limit: each token is new.
"""

from itertools import product

import numpy as np

from assay.scaling.laws.base import Constant, Form, PowerLaw, balance, columns, line, log_sum, slopes
from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN, Floats, Points

PETAFLOP_DAY = 1e15 * 86400
"""FLOPs of one PF-day."""
_SOURCE = "Kaplan et al. 2020 (arXiv:2001.08361)"
KAPLAN = "Kaplan 2020"
"""Source of the constants, in appendix A of the paper."""
LARGEST_SIZE = 1.5e9
"""Parameters of the largest model of the paper, without embeddings."""
LARGEST_FLOPS = LARGEST_SIZE * 2.5e5 * 512 * 1024 * FLOPS_PER_PARAMETER_AND_TOKEN
"""FLOPs of its longest training: 250,000 steps of 512 sequences of 1,024 tokens."""

KAPLAN_SIZE = PowerLaw(
    name="kaplan-size",
    formula="L(N) = (N_c/N)^α_N",
    source=_SOURCE,
    counts="N without embeddings; data do not limit",
    constants=(Constant("N_c"), Constant("α_N", logarithmic=False)),
    needs=("parameters",),
    extent="parameters",
    published={KAPLAN: (8.8e13, 0.076)},
    reach=LARGEST_SIZE,
    of_column="parameters",
)
KAPLAN_DATA = PowerLaw(
    name="kaplan-data",
    formula="L(D) = (D_c/D)^α_D",
    source=_SOURCE,
    counts="D in tokens, early stopping; the size does not limit",
    constants=(Constant("D_c"), Constant("α_D", logarithmic=False)),
    needs=("tokens",),
    extent="tokens",
    published={KAPLAN: (5.4e13, 0.095)},
    reach=2.3e10,
    of_column="tokens",
)
KAPLAN_COMPUTE = PowerLaw(
    name="kaplan-compute",
    formula="L(C) = (C_c/C)^α_C",
    source=_SOURCE,
    counts="C as counted, or else 6·N·D (N without embeddings), at one batch size; C_c in PF-days",
    constants=(Constant("C_c", unit=PETAFLOP_DAY), Constant("α_C", logarithmic=False)),
    needs=("compute",),
    published={KAPLAN: (1.6e7, 0.057)},
    reach=LARGEST_FLOPS,
    of_column="compute",
)
KAPLAN_MIN_COMPUTE = PowerLaw(
    name="kaplan-min-compute",
    formula="L(C_min) = (C_c/C_min)^α_C",
    source=_SOURCE,
    counts="C_min = C/(1 + B/B_crit), a column of its own; C_c in PF-days",
    constants=(Constant("C_c", unit=PETAFLOP_DAY), Constant("α_C", logarithmic=False)),
    needs=("min_flops",),
    published={KAPLAN: (3.1e8, 0.050)},
    reach=LARGEST_FLOPS,
    of_column="min_flops",
)


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
