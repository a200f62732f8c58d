"""A tensor as arithmetic sees it: a name, a shape, a dtype, and whether the batch is its first axis."""

from dataclasses import dataclass, replace
from math import prod
from typing import Self

DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "int64": 8,
    "int32": 4,
    "uint8": 1,
    "float8_e4m3fn": 1,
    "bool": 1,
}


@dataclass(frozen=True)
class Tensor:
    """One value of the step. A view names the tensor whose storage it shares."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    batched: bool = True
    """The first axis grows with the sequences in a micro-batch."""
    view_of: str | None = None
    held: bool = False
    """Kept until the forward pass ends, whoever still reads it (autocast's weight copies)."""
    wide: bool = False
    """In its dtype whatever else is narrowed."""
    chunks: int = 1
    """Only the largest of so many chunks of the first axis exists at a time."""

    @property
    def elements(self) -> int:
        """Number of elements."""
        if self.chunks == 1:
            return prod(self.shape)
        return -(-self.shape[0] // self.chunks) * prod(self.shape[1:])

    @property
    def nbytes(self) -> int:
        """Bytes of the elements; a view's storage may hold more."""
        return self.elements * DTYPE_BYTES[self.dtype]

    def cast(self, dtype: str) -> Self:
        """The same values in another dtype."""
        return self if self.wide else replace(self, dtype=dtype)

    def cut(self, parts: int) -> Self:
        """One of `parts` equal parts along the batch, or the tensor itself where it does not grow with it."""
        if not self.batched:
            return self
        return replace(self, shape=(self.shape[0] // parts, *self.shape[1:]))

    def piece(self, parts: int, index: int, dimension: int = 0) -> Self:
        """What one of `parts` keeps: equal lengths along `dimension`, so that the last ones have less, or nothing."""
        length = self.shape[dimension]
        share = -(-length // parts)
        own = max(0, min(share, length - index * share))
        return replace(self, shape=(*self.shape[:dimension], own, *self.shape[dimension + 1 :]))
