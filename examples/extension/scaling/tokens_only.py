"""A law of loss: a power of the training tokens, which never reaches a floor.

L = (D_c/D)^α has two constants. It fits runs that are far from the loss of their text, where a floor is not seen.
"""

from assay.scaling.laws.base import Constant, PowerLaw

TOKENS_ONLY = PowerLaw(
    name="tokens-only",
    formula="L(D) = (D_c/D)^α",
    source="an example; the form of Kaplan et al. 2020",
    counts="D in tokens; the size does not limit",
    constants=(Constant("D_c"), Constant("α", logarithmic=False)),
    needs=("tokens",),
    extent="tokens",
    of_column="tokens",
)
