"""Answers of laws: the optimum with its intervals, and how far beyond the fitted runs it is.

An answer beyond 100 times the compute of the largest fitted run is marked. Beyond 10,000 times it is refused, unless
the user insists. It then keeps its compute only.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from assay.errors import UsageError
from assay.estimator.cost import FlopsCost
from assay.scaling.asking.frontier import (
    Frontier,
    Interval,
    Optimum,
    OptimumCurve,
    for_parameters,
    for_tokens,
)
from assay.scaling.asking.other_size import OtherSize
from assay.scaling.fitted import MARKED, REFUSED

Quantity = Literal["flops", "parameters", "tokens"]
_SOLVERS: Mapping[Quantity, Callable[[OptimumCurve, float], Optimum]] = {
    "flops": lambda curve, value: curve.at(value),
    "parameters": for_parameters,
    "tokens": for_tokens,
}


@dataclass(frozen=True)
class LawAnswer:
    """One law's answer."""

    law: str
    frontier: Frontier
    flops: float
    """Training FLOPs of the answer."""
    optimum: Optimum | None
    """None if the answer is refused."""
    intervals: Mapping[Quantity, Interval]
    """Intervals of the quantities that were not given; empty if the law has none."""
    overtrained: OtherSize | None = None
    served: OtherSize | None = None
    bill: FlopsCost | None = None

    @property
    def beyond(self) -> float:
        """Training FLOPs over those of the largest fitted run."""
        return self.frontier.reach.beyond(self.flops)

    @property
    def far(self) -> bool:
        """The answer is so far beyond the fitted runs that it is marked."""
        return self.beyond > MARKED


@dataclass(frozen=True)
class LawAnswers:
    """The best size and data by each law."""

    quantity: Quantity
    """The quantity that was given."""
    value: float
    answers: Mapping[str, LawAnswer]
    """Answers by the name of the law."""
    tokens_per_parameter: float | None = None
    inference_tokens: float | None = None


def answer(name: str, frontier: Frontier, quantity: Quantity, value: float, far: bool) -> LawAnswer:
    """Return the answer of one law to a given compute, size or amount of data."""
    found = _SOLVERS[quantity](frontier, value)
    if refused(frontier, found.flops, far):
        return LawAnswer(name, frontier, found.flops, None, {})
    return LawAnswer(name, frontier, found.flops, found, _intervals(frontier, quantity, value))


def _intervals(frontier: Frontier, quantity: Quantity, value: float) -> dict[Quantity, Interval]:
    """Return intervals of the two quantities that are not given; none if the law has no error."""
    if frontier.spread is None:
        return {}

    def figure(name: Quantity, curve: OptimumCurve) -> float:
        return float(getattr(_SOLVERS[quantity](curve, value), name))

    return {one: frontier.spread.interval(partial(figure, one)) for one in _SOLVERS if one != quantity}


def check_any(laws: Iterable[Frontier], flops: Iterable[float], far: bool) -> None:
    """Raise `UsageError` if every law refuses its answer at some compute."""
    beyond = [law.reach.beyond(one) for law, one in zip(laws, flops, strict=True)]
    if not far and min(beyond) > REFUSED:
        raise UsageError(
            f"that is {min(beyond):.2g} times the compute of the largest run that any of these laws was fitted to, and "
            f"beyond {REFUSED:,.0f} times none is asked; add --far to see numbers that nothing supports"
        )


def refused(frontier: Frontier, flops: float, far: bool) -> bool:
    """An answer at this compute is refused."""
    return not far and frontier.reach.beyond(flops) > REFUSED
