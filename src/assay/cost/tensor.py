"""A tensor without data: a name, a shape, a dtype, and whether its first axis is the batch."""

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, Self, TypeVar

from assay.config import ModelConfig

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


class Alterable:
    """A frozen dataclass without cached properties, of which `alter` makes changed copies."""


Record = TypeVar("Record", bound=Alterable)


def alter(record: Record, **changes: Any) -> Record:
    """The record with some fields changed: `dataclasses.replace`, without the checks that make it slow."""
    copy = _new(record.__class__)
    _set(copy, "__dict__", record.__dict__ | changes)
    return copy


_new, _set = object.__new__, object.__setattr__


class Places(NamedTuple):
    """Rows of experts with a capacity: as many for each expert, rounded up for the tokens of a micro-batch."""

    config: ModelConfig
    tokens: int

    @property
    def rows(self) -> int:
        """Number of rows of all experts."""
        return (self.config.n_expert or 1) * (self.config.expert_places(self.tokens) or 0)


@dataclass(frozen=True)
class Tensor(Alterable):
    """One tensor of the step. A view names the tensor whose storage it shares."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    batched: bool = True
    """True if the first axis grows with the sequences of a micro-batch."""
    view_of: str | None = None
    held: bool = False
    """True if it stays allocated until the forward pass ends, even without a reader (autocast's weight copies)."""
    wide: bool = False
    """True if its dtype stays when the rest is narrowed."""
    chunks: int = 1
    """Number of chunks of the first axis, of which only one exists at a time; bytes are those of the largest."""
    places: Places | None = None
    """Rows of experts that are the first axis; they are rounded, so a part of the batch has a few more."""

    @property
    def elements(self) -> int:
        """Number of elements."""
        if self.chunks == 1:
            return prod(self.shape)
        return -(-self.shape[0] // self.chunks) * prod(self.shape[1:])

    @property
    def nbytes(self) -> int:
        """Bytes of the elements; a view's storage may hold more."""
        elements = prod(self.shape) if self.chunks == 1 else self.elements
        return elements * DTYPE_BYTES[self.dtype]

    def cast(self, dtype: str) -> Self:
        """The tensor in another dtype, unless it is `wide`."""
        return self if self.wide else alter(self, dtype=dtype)

    def cut(self, parts: int) -> Self:
        """One of `parts` equal parts along the batch; the tensor itself if it is not `batched`."""
        if not self.batched:
            return self
        if self.places is not None:
            fewer = self.places._replace(tokens=self.places.tokens // parts)
            return alter(self, shape=(fewer.rows, *self.shape[1:]), places=fewer)
        return alter(self, shape=(self.shape[0] // parts, *self.shape[1:]))

    def piece(self, parts: int, index: int, dimension: int = 0) -> Self:
        """Shard `index` of `parts` along `dimension`, ⌈length / parts⌉ long; the last shards are shorter or empty."""
        length = self.shape[dimension]
        share = -(-length // parts)
        own = max(0, min(share, length - index * share))
        return alter(self, shape=(*self.shape[:dimension], own, *self.shape[dimension + 1 :]))


BLANK = Tensor("", ())
"""A tensor that is altered to each new one where there are many, because that takes half the time of making one."""
