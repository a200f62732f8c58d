"""Checks for the proofs of replicas and shards: each rank has its share of the batch, and exactly its part of weights.

Gradients are summed once a step. Each parameter is divided along the promised dimension. Torch cuts a dimension of n
into chunks of ceil(n / ranks); the last chunks may be shorter, or empty. An engine may pad the storage of a short chunk
to the bytes of a full one.
"""

from collections.abc import Callable, Iterable, Mapping
from math import prod

from assay.config import ResolvedRun
from assay.records.trace import HeldParameter, Phase, Trace


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
    item = _item_bytes(one)
    padded = piece_shape(one, ranks, dict.fromkeys(ranks, 0))
    shape = piece_shape(one, ranks, place)
    return shape == one.shape and one.held_bytes in (item * prod(shape), item * prod(padded))


def _item_bytes(one: HeldParameter) -> int:
    return one.whole_bytes // max(1, prod(one.whole_shape))


def message_bytes(trace: Trace, parameters: Iterable[HeldParameter]) -> int:
    """Bytes of a message that joins the shards of `parameters` along dp, each padded to the first rank's."""
    first = {**trace.place, "dp": 0}
    padded = ((one, prod(piece_shape(one, trace.ranks, first))) for one in parameters)
    return trace.ranks.get("dp", 1) * sum(_item_bytes(one) * elements for one, elements in padded)


_FIGURES = 24
"""Largest number of bytes of a step's figures: its loss, and the norms of two activations."""


def wrong_share(trace: Trace, run: ResolvedRun) -> str:
    """Describe this rank's sequences if they are not its equal share of a step's; empty if they are."""
    ranks, whole = trace.ranks.get("dp", 1), run.sequences_per_step
    if trace.batch.sequences * ranks == whole:
        return ""
    return f"; {trace.batch.sequences} of the batch's {whole} sequences on this rank of {ranks}"


def summed_once(trace: Trace, run: ResolvedRun) -> tuple[str, bool]:
    """Describe the bytes of gradients that replicas sum, and return whether they sum each gradient exactly once."""
    # Under a pipeline the all-reduce begins after the last stage's backward; torch issues it from forward.
    phases: tuple[Phase, ...] = ("backward", "forward") if trace.ranks.get("pp", 1) > 1 else ("backward",)
    reduced = sum(trace.communicated("all_reduce", axis="dp", phase=phase) for phase in phases)
    shared = sum(one.held_bytes for one in trace.trained if "dp" not in one.divided_over)
    # Forward also sums a step's figures, and the loads of a mixture's experts.
    beside = _FIGURES + 16 * trace.forwards * len(trace.blocks) * (run.model.n_expert or 0)
    exact = reduced == shared or ("forward" in phases and shared < reduced <= shared + beside)
    return f"{reduced} bytes summed over the ranks, for {shared} bytes of gradients", shared > 0 and exact
