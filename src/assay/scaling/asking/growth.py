"""Growth of the best size and data with compute, by each law.

Where N is a power of C, its factor is the same from any start. A run off the optimum keeps its distance from it if its
N and D are multiplied by the factors of the optimum.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from assay.scaling.asking.answer import refused
from assay.scaling.asking.frontier import Frontier, Interval, Optimum, OptimumCurve


@dataclass(frozen=True)
class Growth:
    """Growth of N and D with compute by one law."""

    law: str
    frontier: Frontier
    times: float
    """Compute over that of the start."""
    parameters: float
    """N over that of the start."""
    parameters_interval: Interval | None
    tokens: float
    """D over that of the start."""
    flops: float | None
    """Training FLOPs of the end; None without a start."""
    end: Optimum | None
    """Optimum of the end; None without a start, and if it is refused."""
    refused: bool

    @property
    def beyond(self) -> float | None:
        """Training FLOPs of the end over those of the largest fitted run; None without a start."""
        return None if self.flops is None else self.frontier.reach.beyond(self.flops)


@dataclass(frozen=True)
class Growths:
    """Growth of the best size and data with compute, by each law."""

    times: float
    flops: float | None
    """Training FLOPs of the start."""
    run: tuple[float, float] | None
    """N and D of the start, if it is a run."""
    answers: Mapping[str, Growth]


def growth(name: str, frontier: Frontier, times: float, flops: float | None, far: bool) -> Growth:
    """Return the growth of N and D, from the optimum of `flops`, or from that of the largest fitted run."""
    start = frontier.reach.most if flops is None else flops

    def factor(curve: OptimumCurve) -> float:
        return curve.at(times * start).parameters / curve.at(start).parameters

    size = factor(frontier)
    interval = None if frontier.spread is None else frontier.spread.interval(factor)
    end = None if flops is None else times * flops
    beyond = end is not None and refused(frontier, end, far)
    optimum = None if end is None or beyond else frontier.at(end)
    return Growth(name, frontier, times, size, interval, times / size, end, optimum, beyond)
