"""Power laws of one quantity (Kaplan et al. 2020, equations 1.1 to 1.3): L(N), L(D), L(C) and L(C_min).

L(N) is the loss of a model that trains to convergence, and L(D) that of a large model with early stopping. L(C) is the
lowest loss of a compute at one batch size, and L(C_min) at a batch far below the critical one. Each was fitted alone.
Their constants are not those of the joint laws L(N, D) and L(N, S), although they share symbols.

Losses are in nats per token of WebText2, so x_c depends on the tokenizer. N has no embeddings.
"""

from assay.scaling.laws.base import Constant
from assay.scaling.laws.power import PowerLaw
from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN

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
