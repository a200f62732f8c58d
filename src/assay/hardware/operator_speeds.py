"""Speeds of single operators by their size: what peaks leave out.

A small product is slower than a large one, and an exponential is slower than a copy. A tensor in a cache is read
faster, and fresh memory is written slowly. `instruments.rates.timed_operators` measures these speeds, and the roofline
of a step reads them.
"""

from functools import lru_cache
from math import exp, log

from assay.config.base import Frozen

MOVING = "moving"
"""Key of a copy with another layout, whose speed is that of all operators which were not measured."""
CALLING = "calling"
"""Key of the calls per second of modules on a few numbers: what the host needs for an operator of a model."""
FLASH_DEPTHS = (16, 32, 64)
"""Depths of heads at which fused attention is measured, each by the length of its sequences."""


class OperatorSpeed(Frozen):
    """Speed of an operator's forward and backward at some sizes."""

    at: tuple[float, ...]
    """Sizes, ascending: bytes of arguments and results; for products the narrowest dimension of the factors, and for
    fused attention the length of sequences."""
    forward: tuple[float, ...]
    """Bytes of arguments and results per second at each size, or FLOPs per second of a product."""
    backward: tuple[float, ...]
    """Bytes or FLOPs per second in backward, where the bytes count twice."""

    def seconds(self, size: float, forward: float, backward: float) -> tuple[float, float]:
        """Return the seconds of so many bytes or FLOPs in forward and in backward, at a size."""
        return forward / _between(self.at, self.forward, size), backward / _between(self.at, self.backward, size)


def key_of(name: str, dtype: str) -> str:
    """Return the key of an operator's speed in one dtype."""
    return f"{name} {dtype}"


def flash_key(depth: int, dtype: str) -> str:
    """Return the key of fused attention's speed for heads of about this depth."""
    nearest = min(FLASH_DEPTHS, key=lambda one: abs(log(one / depth)))
    return f"fused attention of depth {nearest} {dtype}"


@lru_cache(maxsize=2**14)
def _between(sizes: tuple[float, ...], speeds: tuple[float, ...], size: float) -> float:
    """Return the speed at a size: on a line between logarithms, and constant beyond the ends."""
    if size <= sizes[0]:
        return speeds[0]
    for low, high, slow, fast in zip(sizes, sizes[1:], speeds, speeds[1:], strict=False):
        if size <= high:
            share = log(size / low) / log(high / low)
            return exp((1 - share) * log(slow) + share * log(fast))
    return speeds[-1]
