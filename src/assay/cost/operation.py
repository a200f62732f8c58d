"""One operation of the forward pass as data, and the tensors without data that it reads and makes.

A tensor has a name, a shape and a dtype, and says whether its first axis is the batch. An operation has inputs,
results, saved tensors, gradients, work and communications.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, Self, TypeVar

from assay.config import ModelConfig
from assay.cost.collectives import Collective

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


class Gradient(Enum):
    """Storage of the gradient that an operation's backward returns for one of its inputs."""

    NONE = "the input has no gradient"
    FRESH = "a new tensor of the input's shape"
    ALIAS = "the output's gradient itself, or a view of it"
    OVERWRITING = "overwrites the tensor that its node reads last, if that is as large; otherwise a new tensor"
    INSIDE = "none: a compiled loop continues with its input"
    INPLACE = "a new tensor that the engine adds into the input's other gradients (a parameter's)"
    VIEWED = "a new tensor under another shape, into which the engine adds nothing"
    CONVERTED = "a new tensor of the output's shape and dtype, which the engine then casts or sums to the input's"
    TRANSPOSED = "a parameter's in another order of elements, which is copied when it is accumulated"


class Sending(NamedTuple):
    """A collective, and the mesh axis along which its ranks differ."""

    collective: Collective
    axis: str


class Exchange(NamedTuple):
    """A communication of one of an operation's own tensors, in forward or in backward."""

    sending: Sending
    of: str
    """Name of the tensor, among the operation's outputs, extras and scratch."""
    times: int = 1
    back: bool = False


class Collectives(NamedTuple):
    """Communications of one operation."""

    forward: Sending | None = None
    """Collective by which forward communicates its result, or its input if it is a reduce-scatter."""
    backward: Sending | None = None
    """Collective by which backward communicates the gradient of its first input, or of its result if it is a
    reduce-scatter."""
    exchanges: tuple[Exchange, ...] = ()
    """Further communications, which are neither of the two above."""


class Flops(NamedTuple):
    """FLOPs of one operation; a multiply-add counts two."""

    forward: int = 0
    backward: int = 0
    padding: int = 0
    """FLOPs of forward and backward that the model does not need: on padded rows, or recomputed by the operation
    itself."""

    def divided(self, parts: int) -> "Flops":
        """FLOPs of one of `parts` equal parts."""
        if self == _NO_FLOPS:
            return self
        return Flops(self.forward // parts, self.backward // parts, self.padding // parts)


class Scratch(NamedTuple):
    """Temporaries of one operation."""

    forward: tuple[Tensor, ...] = ()
    backward: tuple[Tensor, ...] = ()

    def and_also(self, forward: Iterable[Tensor] = (), backward: Iterable[Tensor] = ()) -> "Scratch":
        """These temporaries and further ones."""
        return Scratch((*self.forward, *forward), (*self.backward, *backward))

    def changed(self, change: Callable[[Tensor], Tensor]) -> "Scratch":
        """These temporaries with `change` applied to each."""
        if not (self.forward or self.backward):
            return self
        return Scratch(tuple(map(change, self.forward)), tuple(map(change, self.backward)))


_NO_FLOPS, _NO_SCRATCH, _ALONE = Flops(), Scratch(), Collectives()


# More than 20 fields: an operation is what rewrites of all techniques change, each some of them.
@dataclass(frozen=True)
class Operation(Alterable):
    """One operation of the forward pass, with its backward."""

    name: str
    """Name of torch's operator."""
    site: str
    """Module path, for instance `blocks.0.attention.core`."""
    kind: str
    """Kind of operation: contraction, normalization, elementwise or movement."""
    inputs: tuple[str, ...]
    outputs: tuple[Tensor, ...]
    gradients: tuple[Gradient, ...]
    """One for each input."""
    saves: tuple[str, ...] = ()
    """Names of the inputs, outputs or extras saved for backward."""
    extras: tuple[Tensor, ...] = ()
    """Results that no other operation reads, such as statistics and dropout noise."""
    holds: tuple[str, ...] = ()
    """Names that the caller's frame keeps alive until this operation has run, although it does not read them."""
    flops: Flops = _NO_FLOPS
    backward: str = ""
    """The autograd node, without its trailing number; it names the instant of a peak."""
    scratch: Scratch = _NO_SCRATCH
    collectives: Collectives = _ALONE
    products: str = ""
    """dtype in which a contraction multiplies, if it is not that of its inputs."""
    autocast: str = ""
    """Treatment by autocast, if its kind does not decide it: `float32`, which 16-bit training respects as well, or
    `low`. With `low` the module casts at this use, and the copy is not cached."""
    counts: bool = False
    """True if it counts over the whole batch, so that ranks which share a batch sum their results at once."""
    backend: str = ""
    """Kernel of attention by torch as it was asked for; `math` marks the probabilities that it returns."""
    noisy: bool = False
    """True for fused attention that drops probabilities."""
    of_heads: int = 0
    """Number of heads, for a copy that is a view if the micro-batch has one sequence; 0: none."""
    opaque: bool = False
    """True for a function that is not compiled."""
    number_bytes: int = 0
    """Bytes of Python numbers that its node saves, each wrapped in a tensor on a CPU. A recomputed module saves them in
    its first forward already, because hooks of saved tensors do not receive them."""
    compiled: bool = False
    """True if a compiler orders it. A loop overwrites a tensor of which it is the last reader, if that is as large. The
    backward of a product with a weight frees the input before it computes the input's gradient."""

    @property
    def own(self) -> "dict[str, Tensor]":
        """Every tensor that it makes, by name."""
        made = (*self.outputs, *self.extras, *self.scratch.forward, *self.scratch.backward)
        return {tensor.name: tensor for tensor in made}

    def within(self, *sites: str) -> bool:
        """True if it belongs to one of the modules `sites` or to a module inside them."""
        return _within(self.site, sites)

    def reading(self, names: Mapping[str, str]) -> "Operation":
        """The operation with inputs, saved tensors and views renamed by `names`; `holds` stays."""
        inputs, saves = (tuple(names.get(name, name) for name in old) for old in (self.inputs, self.saves))
        outputs = (alter(one, view_of=names.get(one.view_of or "", one.view_of)) for one in self.outputs)
        return alter(self, inputs=inputs, saves=saves, outputs=tuple(outputs))

    def making(self, change: Callable[[Tensor], Tensor]) -> "Operation":
        """The operation with `change` applied to its outputs, extras and scratch."""
        return alter(
            self,
            outputs=tuple(map(change, self.outputs)),
            extras=tuple(map(change, self.extras)),
            scratch=self.scratch.changed(change),
        )

    def cut(self, parts: int) -> "Operation":
        """The operation on one of `parts` equal parts of the batch."""
        outputs = tuple([tensor.cut(parts) for tensor in self.outputs])
        if self.of_heads and outputs[0].shape[0] == self.of_heads:
            outputs = (alter(outputs[0], view_of=self.inputs[0]),)
        return alter(
            self,
            outputs=outputs,
            extras=tuple([tensor.cut(parts) for tensor in self.extras]),
            scratch=self.scratch.changed(lambda tensor: tensor.cut(parts)),
            flops=self.flops.divided(parts),
        )

    def shared(self, axis: str) -> "tuple[Operation, ...]":
        """The operation where ranks along an axis share a batch: an all-reduce of the result follows a count."""
        if not self.counts:
            return (self,)
        (own,) = self.outputs
        summed = Operation(
            name="all_reduce",
            site=self.site,
            kind="movement",
            inputs=(own.name,),
            outputs=(alter(own, name=f"{own.name} over {axis}"),),
            gradients=(Gradient.NONE,),
            collectives=Collectives(Sending("all_reduce", axis)),
            counts=True,
        )
        return (alter(self, counts=False), summed)


@lru_cache(maxsize=1 << 16)
def _within(site: str, sites: tuple[str, ...]) -> bool:
    """True if a site is one of `sites`, or inside one; a search asks this a million times."""
    return any(site == one or site.startswith(f"{one}.") for one in sites)
