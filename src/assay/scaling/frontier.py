"""Frontiers: the best model size and data as a function of compute, with intervals and the reach of a law.

A frontier answers from compute, C = 6·N·D, or as its points count it (`scaling.points`). Its answer for a size or
for an amount of data is found by bisection of log C. An interval is made of other curves that could be true: draws of a
bootstrap, or the ends of an exponent's published interval.

Few papers publish more than that exponent. `Tilted` changes it and holds the line at one compute. For the laws of
Hoffmann et al. and Besiroglu et al. that is their smallest budget, 6e18 FLOPs. A bootstrap of their points gives about
the same widths from 1e21 to 1e25 FLOPs, and wider ones near 6e18 (a test compares them).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.optimize import brentq

from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN, PLAIN, Accounting, Floats

Interval = tuple[float, float]
_AROUND, _SIZES, _CLOSE = 1e3, 64, 1e-7
"""Factor about a law's own optimum within which that of other FLOPs is searched; sizes at once, and their last step."""
_POWERS = (-40.0, 90.0)
"""Powers of ten of the FLOPs among which an optimum is searched."""


class Optimum(NamedTuple):
    """The best size and data for some compute, by one law."""

    parameters: float
    tokens: float
    flops: float
    loss: float | None
    """Loss in nats per token, if the law states it. It is that of the paper's text and tokenizer."""

    @property
    def tokens_per_parameter(self) -> float:
        """D/N."""
        return self.tokens / self.parameters


class LossLaw(Protocol):
    """A law of the loss by size and data."""

    def loss(self, parameters: "Floats | float", tokens: "Floats | float") -> Floats:
        """Return the loss of models with N parameters that train on D tokens."""
        ...

    def optimum(self, flops: float) -> tuple[float, float]:
        """Return the N and D with the lowest loss at 6·N·D = `flops`."""
        ...


class OptimumCurve(Protocol):
    """An optimum for any compute."""

    def at(self, flops: float) -> Optimum:
        """Return the optimum of a budget of training FLOPs."""
        ...


@dataclass(frozen=True)
class Minimum:
    """The minimum of a law of the loss."""

    law: LossLaw

    def at(self, flops: float) -> Optimum:
        """Return the optimum of a budget of training FLOPs."""
        parameters, tokens = self.law.optimum(flops)
        return Optimum(parameters, tokens, flops, float(self.law.loss(parameters, tokens)))


@dataclass(frozen=True)
class CountedMinimum:
    """The minimum of a law of the loss among trainings of equal FLOPs, as points count them.

    The lowest of 64 sizes is found, then that of 64 between its neighbours, and so on until they are equal to 1e-7.
    """

    law: LossLaw
    accounting: Accounting

    def at(self, flops: float) -> Optimum:
        """Return the optimum of a budget of training FLOPs."""
        middle, reach = np.log(self.law.optimum(flops)[0]), np.log(_AROUND)
        while reach > _CLOSE:
            sizes = np.exp(np.linspace(middle - reach, middle + reach, _SIZES))
            losses = self.law.loss(sizes, self.accounting.tokens(sizes, flops))
            middle, reach = np.log(sizes[np.argmin(losses)]), 2 * reach / (_SIZES - 1)
        parameters = float(np.exp(middle))
        tokens = float(self.accounting.tokens(parameters, flops))
        return Optimum(parameters, tokens, flops, float(self.law.loss(parameters, tokens)))


@dataclass(frozen=True)
class Tilted:
    """A curve with another exponent of N, which agrees with it at one compute."""

    curve: OptimumCurve
    exponent: float
    held_flops: float

    def at(self, flops: float) -> Optimum:
        """Return the optimum of a budget of training FLOPs; it has no loss."""
        change = self.exponent - exponent(self.curve)
        parameters = self.curve.at(flops).parameters * (flops / self.held_flops) ** change
        return Optimum(parameters, flops / FLOPS_PER_PARAMETER_AND_TOKEN / parameters, flops, None)


class Reach(NamedTuple):
    """Compute of the runs to which a law was fitted."""

    least: float | None
    """FLOPs of the smallest; None if no paper states it."""
    most: float
    """FLOPs of the largest."""
    source: str

    def beyond(self, flops: float) -> float:
        """Return a compute as a multiple of the largest."""
        return flops / self.most


@dataclass(frozen=True)
class Spread:
    """Curves that could be true as well, and the share of cases in which their interval has the truth."""

    curves: tuple[OptimumCurve, ...]
    level: float
    source: str
    ends: bool = False
    """Two curves are the ends of the interval themselves; else its ends are quantiles among all curves."""

    def interval(self, figure: Callable[[OptimumCurve], float]) -> Interval:
        """Return the interval of a figure that follows from a curve."""
        tail = 0.0 if self.ends else (1 - self.level) / 2
        low, high = np.quantile([figure(curve) for curve in self.curves], (tail, 1 - tail))
        return float(low), float(high)


@dataclass(frozen=True)
class Frontier:
    """A law that has an optimum for any compute, as it is cited."""

    curve: OptimumCurve
    source: str
    """Paper, and how it counts."""
    reach: Reach
    spread: Spread | None = None
    """None if no error of the law's optimum is known."""
    law: LossLaw | None = None
    """Loss by size and data; None for laws that state the optimum only."""
    accounting: Accounting = PLAIN
    """Ratio of the FLOPs that its points count to 6·N·D."""

    def at(self, flops: float) -> Optimum:
        """Return the optimum of a budget of training FLOPs."""
        return self.curve.at(flops)


def minimum(law: LossLaw, accounting: Accounting = PLAIN) -> OptimumCurve:
    """Return the optimum of a law for any compute, as its points count FLOPs."""
    return Minimum(law) if accounting.plain else CountedMinimum(law, accounting)


def exponent(curve: OptimumCurve) -> float:
    """Return the power of C by which N grows, at 1e20 FLOPs."""
    return float(np.log10(curve.at(1e21).parameters / curve.at(1e20).parameters))


def for_parameters(curve: OptimumCurve, parameters: float) -> Optimum:
    """Return the optimum whose model has so many parameters."""
    return _solved(curve, lambda found: np.log(found.parameters / parameters))


def for_tokens(curve: OptimumCurve, tokens: float) -> Optimum:
    """Return the optimum whose training has so many tokens."""
    return _solved(curve, lambda found: np.log(found.tokens / tokens))


def _solved(curve: OptimumCurve, miss: Callable[[Optimum], float]) -> Optimum:
    logs = brentq(lambda power: miss(curve.at(10.0**power)), *_POWERS, xtol=1e-12)
    return curve.at(10.0**logs)
