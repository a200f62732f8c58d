"""torchao's AdamW with moments in 8 bits, as the ledger sees it (arXiv:2110.02861; read off `torchao/optim`).

A moment of 4,096 numbers or more that blocks of 256 divide is a code of a byte for each number, a float32 scale for
each block, and a table of the 256 values that codes stand for; each moment has a table of its own. Every other moment
is as wide as its weight. What the update makes on the way is the compiler's choice: both moments of one weight at full
width is the most that its arithmetic names, and what is taken here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from assay.cost.tensors import DTYPE_BYTES, Tensor
from assay.cost.updates import AdamW, Instant, Pieces, counts, in_order, like

_SMALLEST, _BLOCK, _CODES = 4096, 256, 256


@dataclass(frozen=True)
class EightBitAdamW(AdamW):
    """Moments as codes, in one compiled kernel: weight, gradient and codes read, weight and codes written."""

    passes: ClassVar = 4.0
    launches: ClassVar = 1.0

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """Two moments a parameter, each of one tensor or of three, and its step count."""
        moments = like(pieces, "exp_avg", "exp_avg_sq")
        return (*(part for one in moments for part in _parts(one)), *counts(pieces))

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """Both moments of one parameter, wide."""
        width = 2 * DTYPE_BYTES["float32"]
        return tuple(Instant("AdamW8bit", one.name, width * one.elements) for one in in_order(pieces))


def is_coded(moment: Tensor) -> bool:
    """Whether it is kept in 8 bits; what is small or does not come in whole blocks stays as it is."""
    return moment.elements >= _SMALLEST and moment.elements % _BLOCK == 0


def _parts(moment: Tensor) -> Iterator[Tensor]:
    if not is_coded(moment):
        yield moment
        return
    yield moment.cast("uint8")
    scales = replace(moment, name=f"scale.{moment.name}", shape=(moment.elements // _BLOCK,), dtype="float32")
    yield scales
    yield replace(scales, name=f"table.{moment.name}", shape=(_CODES,))
