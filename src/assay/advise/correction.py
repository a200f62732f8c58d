"""Correction of roofline times by steps that were timed: for all stacks, with an error.

A roofline is a common factor too fast on small shapes, and wrong for some techniques and for some pairs. So the
logarithm of measured over roofline time is modelled as a sum. It has a constant, a term for each technique of a stack,
and one for each pair, all normal with mean zero. The covariance of two stacks then depends only on the number m of
elements that both have: a² + b²·m + c²·m(m−1)/2. The posterior of this Gaussian process is in closed form (Rasmussen
and Williams 2006, algorithm 2.1). A stack that was timed has its own time. One that resembles timed stacks has a small
error, and one with nothing in common has the prior's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

Positions = tuple[int, ...]

COMMON, ELEMENT, PAIR, NOISE = 1.0, 0.3, 0.2, 0.04
"""Standard deviations of logarithms: the common factor, a technique, a pair, a measurement.

A factor of three is usual for the first. Fused attention in bfloat16 was 0.6 off on a CPU, which is a large pair.
"""


@dataclass(frozen=True)
class Corrected:
    """Time of a stack from its roofline and timed stacks."""

    seconds: float
    margin: float
    """Half of the 95 % interval of the logarithm."""


def correct_times(
    roofline: Mapping[Positions, float], measured: Mapping[Positions, float], elements: int
) -> dict[Positions, Corrected]:
    """Return the time of each stack, given roofline and measured seconds; `elements` is the number of positions."""
    import numpy as np
    from scipy.linalg import cho_factor, cho_solve

    stacks, timed = list(roofline), [stack for stack in measured if stack in roofline]
    x, known = _indicators(stacks, elements), _indicators(timed, elements)
    offsets = np.array([log(measured[one] / roofline[one]) for one in timed])
    factor = cho_factor(_covariance(known, known) + NOISE**2 * np.eye(len(timed)))
    cross = _covariance(x, known)
    mean = cross @ cho_solve(factor, offsets)
    sizes = x.sum(axis=1)
    prior = COMMON**2 + ELEMENT**2 * sizes + PAIR**2 * sizes * (sizes - 1) / 2
    spread = np.sqrt(np.maximum(prior - (cross * cho_solve(factor, cross.T).T).sum(axis=1), 0.0) + NOISE**2)
    return {
        stack: Corrected(roofline[stack] * float(np.exp(one)), 1.96 * float(error))
        for stack, one, error in zip(stacks, mean, spread, strict=True)
    }


def _indicators(stacks: Sequence[Positions], elements: int) -> "np.ndarray[Any, Any]":
    import numpy as np

    found = np.zeros((len(stacks), elements))
    for row, stack in enumerate(stacks):
        found[row, list(stack)] = 1.0
    return found


def _covariance(left: "np.ndarray[Any, Any]", right: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    common = left @ right.T
    found: np.ndarray[Any, Any] = COMMON**2 + ELEMENT**2 * common + PAIR**2 * common * (common - 1) / 2
    return found
