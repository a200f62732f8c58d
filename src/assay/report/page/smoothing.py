"""Curves of losses as a page draws them: a running mean, with few points."""

from collections.abc import Sequence
from itertools import accumulate
from math import isfinite

POINTS = 240
"""Most points of a curve, since more cannot be distinguished on a page."""

Curve = tuple[list[float], list[float]]


def smooth(values: Sequence[float | None], most: int = POINTS) -> Curve:
    """Return a centred running mean over a twentieth of the curve and at least three points, with few points."""
    finite = [(step, value) for step, value in enumerate(values) if value is not None and isfinite(value)]
    sums = list(accumulate((value for _, value in finite), initial=0.0))
    reach, every = max(1, len(finite) // 40), -(-len(finite) // most) or 1
    spans = [(max(0, at - reach), min(len(finite), at + reach + 1)) for at in range(0, len(finite), every)]
    means = [(sums[end] - sums[start]) / (end - start) for start, end in spans]
    return [float(step) for step, _ in finite[::every]], means
