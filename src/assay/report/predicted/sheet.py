"""Words on a time that rests on a datasheet only."""

from assay.estimator.timing.roofline import SHEET_FACTORS

SHEET_ROOFLINE = (
    "a roofline of the datasheet's peaks: no step is faster, and real ones take {:g} to {:g} times as long"
).format(*SHEET_FACTORS)
