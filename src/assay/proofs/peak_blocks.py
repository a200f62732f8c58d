"""A measured peak held against the predicted one, block by block: a sentence names the blocks that differ.

Blocks are compared by their bytes. Who made a block is no part of the comparison, because a measurement knows a line
and a prediction a part of memory.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from assay.records.memory import PeakBlock

_NAMED = 3
"""Most sizes that a sentence names."""


def differing_blocks(measured: Sequence[PeakBlock], predicted: Sequence[PeakBlock]) -> tuple[PeakBlock, ...]:
    """Return the blocks by which a measured peak differs, the most bytes first. Missing ones have a negative count.

    `made` names everything that made a block of this size, on the side that has more of them.
    """
    more = _by_size(measured)
    more.subtract(_by_size(predicted))
    found = (
        PeakBlock(nbytes=nbytes, count=count, made=_makers(nbytes, measured if count > 0 else predicted))
        for nbytes, count in more.items()
        if count
    )
    return tuple(sorted(found, key=lambda one: (-one.nbytes * abs(one.count), -one.nbytes)))


def differing_text(measured: Sequence[PeakBlock], predicted: Sequence[PeakBlock]) -> str:
    """Name the blocks by which a measured peak differs; empty if none does, or if either peak has no known blocks."""
    differing = differing_blocks(measured, predicted) if measured and predicted else ()
    others = len(differing) - _NAMED
    parts = [*map(_text, differing[:_NAMED]), *([f"blocks of {others} other sizes"] if others > 0 else [])]
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def _text(one: PeakBlock) -> str:
    count = abs(one.count)
    blocks = f"{'one block' if count == 1 else f'{count} blocks'} of {one.nbytes:,} bytes"
    return f"{blocks} {'more' if one.count > 0 else 'less'} ({one.made})"


def _by_size(blocks: Iterable[PeakBlock]) -> Counter[int]:
    found: Counter[int] = Counter()
    for one in blocks:
        found[one.nbytes] += one.count
    return found


def _makers(nbytes: int, blocks: Iterable[PeakBlock]) -> str:
    return " or ".join(dict.fromkeys(one.made for one in blocks if one.nbytes == nbytes))
