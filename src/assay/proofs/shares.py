"""Checks for the proofs of sharding techniques: each parameter is divided along the promised dimension, exactly.

Torch cuts a dimension of n into chunks of ceil(n / ranks); the last chunks may be shorter, or empty. An engine may pad
the storage of a short chunk to the bytes of a full one.
"""

from collections.abc import Callable, Iterable, Mapping
from math import prod

from assay.records.trace import HeldParameter, Trace


def chunk(length: int, ranks: int, index: int) -> int:
    """Length of one rank's chunk of a dimension."""
    full = -(-length // ranks)
    return min(full, max(0, length - full * index))


def divided_as(
    trace: Trace, parameters: Iterable[HeldParameter], axis: str, promised: Callable[[HeldParameter], int | None]
) -> int:
    """Number of `parameters` that an axis divides exactly along the `promised` dimension; None promises no division."""
    return sum(
        one.dimensions.get(axis) == promised(one) and (axis in one.divided_over) == (promised(one) is not None)
        for one in parameters
        if _is_exact(one, trace.ranks, trace.place)
    )


def piece_shape(one: HeldParameter, ranks: Mapping[str, int], place: Mapping[str, int]) -> tuple[int, ...]:
    """Shape of this rank's shard by torch's chunks; the innermost axis divides first."""
    shape = list(one.whole_shape)
    for axis in reversed(list(ranks)):
        if (dimension := one.dimensions.get(axis)) is not None:
            shape[dimension] = chunk(shape[dimension], ranks[axis], place[axis])
    return tuple(shape)


def _is_exact(one: HeldParameter, ranks: Mapping[str, int], place: Mapping[str, int]) -> bool:
    """True if the shard has the shape of its chunk, and the bytes of that chunk or of a padded one."""
    item = one.whole_bytes // max(1, prod(one.whole_shape))
    padded = piece_shape(one, ranks, dict.fromkeys(ranks, 0))
    shape = piece_shape(one, ranks, place)
    return shape == one.shape and one.held_bytes in (item * prod(shape), item * prod(padded))
