"""The ratio of the FLOPs that points count to 6·N·D, by size.

They may differ because N leaves out embeddings, because attention is counted, or because text is counted once for all
its passes. A law of N and D does not notice, and its answer to a budget then costs another budget. So the ratio is
fitted as a power of N, and answers are those whose FLOPs, as the points count them, are what was asked. Between the
smallest and the largest size of the points the power holds; beyond them it stays at the nearest size's.
"""

from dataclasses import dataclass

import numpy as np

from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN, Floats, Points
from assay.units import format_count

LEAST = 0.03
"""Relative difference of FLOPs from 6·N·D from which they contradict it."""
_STEEPEST = -0.9
"""Least power of N; at −1 all sizes would cost the same."""
_FLAT = 0.02
"""Relative change of the ratio over all sizes below which it has no trend."""


@dataclass(frozen=True)
class Accounting:
    """The ratio of counted FLOPs to 6·N·D, level · N^power between two sizes."""

    level: float = 1.0
    power: float = 0.0
    sizes: tuple[float, float] = (1.0, 1.0)
    """Smallest and largest N of the points."""
    ends: tuple[float, float] = (1.0, 1.0)
    """Smallest and largest ratio of a point."""

    @property
    def plain(self) -> bool:
        """True if FLOPs are 6·N·D."""
        return self.ends == (1.0, 1.0)

    def factor(self, parameters: "Floats | float") -> Floats:
        """Return the FLOPs of a training of such a size over its 6·N·D."""
        return np.asarray(self.level * np.clip(parameters, *self.sizes) ** self.power)

    def flops(self, parameters: "Floats | float", tokens: "Floats | float") -> Floats:
        """Return the FLOPs of a training as the points count them."""
        product = FLOPS_PER_PARAMETER_AND_TOKEN * np.asarray(parameters) * tokens
        return np.asarray(product if self.plain else self.factor(parameters) * product)

    def tokens(self, parameters: "Floats | float", flops: "Floats | float") -> Floats:
        """Return the tokens on which such a size trains for so many FLOPs."""
        each = np.asarray(flops) / FLOPS_PER_PARAMETER_AND_TOKEN / parameters
        return np.asarray(each if self.plain else each / self.factor(parameters))

    def parameters(self, tokens: "Floats | float", flops: "Floats | float") -> Floats:
        """Return the size that trains on so many tokens for so many FLOPs."""
        plain = np.asarray(flops) / FLOPS_PER_PARAMETER_AND_TOKEN / tokens
        first, last = (plain / self.factor(size) for size in self.sizes)
        between = (plain / self.level) ** (1 / (1 + self.power))
        return np.where(first < self.sizes[0], first, np.where(last > self.sizes[1], last, between))

    @property
    def warning(self) -> str:
        """Sentence on the ratio and its trend; empty if FLOPs are 6·N·D."""
        if self.plain:
            return ""
        low, high = self.ends
        spread = "" if high / low < 1 + _FLAT else f" ({low:.3g} to {high:.3g})"
        middle = float(self.factor(float(np.sqrt(np.prod(self.sizes)))))
        first, last = (float(self.factor(size)) for size in self.sizes)
        trend = ", about the same at all sizes"
        if abs(last / first - 1) >= _FLAT:
            way = "falls" if last < first else "grows"
            named = [f"{one:.3g} at {format_count(size)}" for one, size in zip((first, last), self.sizes, strict=True)]
            trend = f". The factor {way} with size, from {named[0]} to {named[1]} parameters"
        return (
            f"FLOPs of these points are {middle:.3g} times 6·N·D{spread}{trend}. N may leave out embeddings, "
            "attention may be counted, or tokens may be those of one pass of several."
        )


PLAIN = Accounting()
"""FLOPs are 6·N·D."""


def accounting(points: Points) -> Accounting:
    """Return how points count FLOPs: `PLAIN` if they do not, or if all of them are within 3 % of 6·N·D."""
    product = FLOPS_PER_PARAMETER_AND_TOKEN * points.parameters * points.tokens
    if points.counted_flops is None or np.isnan(points.counted_flops + product).any():
        return PLAIN
    ratios = points.counted_flops / product
    if np.abs(ratios - 1).max() < LEAST:
        return PLAIN
    sizes, logs = np.log(points.parameters), np.log(ratios)
    several = len(np.unique(points.parameters)) > 1
    power, level = np.polyfit(sizes, logs, 1) if several else (0.0, logs.mean())
    ends = float(points.parameters.min()), float(points.parameters.max())
    if power < _STEEPEST:
        power, level = _STEEPEST, float(np.mean(logs - _STEEPEST * sizes))
    return Accounting(float(np.exp(level)), float(power), ends, (float(ratios.min()), float(ratios.max())))


def spent_flops(points: Points) -> Floats:
    """Return the FLOPs of points, as they count them if that contradicts 6·N·D."""
    return points.flops if accounting(points).plain else points.compute
