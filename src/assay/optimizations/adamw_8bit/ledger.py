"""torchao's AdamW with moments in 8 bits, as the ledger sees it (arXiv:2110.02861; read off `torchao/optim`).

A moment is coded if it has 4,096 numbers or more, in whole blocks of 256. It has a code of one byte for each number and
a float32 scale for each block. Its own table holds the 256 values of the codes. Every other moment is as wide as its
weight. The temporaries of the update are the compiler's choice. Both moments of one weight at full width are the most
that its arithmetic names, and are assumed here.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from assay.cost.optimizers.updates import AdamW, Instant, Pieces, counts, in_order, like
from assay.cost.tensors import DTYPE_BYTES, Tensor

_SMALLEST, _BLOCK, _CODES = 4096, 256, 256


@dataclass(frozen=True)
class EightBitAdamW(AdamW):
    """AdamW with coded moments in one compiled kernel, which reads weight, gradient and codes and writes weight and
    codes.
    """

    passes: ClassVar = 4.0
    launches: ClassVar = 1.0

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """Two moments for each parameter, each of one tensor or of three, and its step count."""
        moments = like(pieces, 2)
        return (*(part for one in moments for part in _parts(one)), *counts(pieces))

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """Both moments of one parameter, in float32."""
        width = 2 * DTYPE_BYTES["float32"]
        return tuple(Instant("AdamW8bit", one.name, width * one.elements) for one in in_order(pieces))


def is_coded(moment: Tensor) -> bool:
    """True if the moment is kept in 8 bits: it is large enough and has whole blocks."""
    return moment.elements >= _SMALLEST and moment.elements % _BLOCK == 0


def _parts(moment: Tensor) -> Iterator[Tensor]:
    if not is_coded(moment):
        yield moment
        return
    yield moment.cast("uint8")
    scales = replace(moment, name=f"scale.{moment.name}", shape=(moment.elements // _BLOCK,), dtype="float32")
    yield scales
    yield replace(scales, name=f"table.{moment.name}", shape=(_CODES,))
