"""The forward pass as data: each operation with its inputs, results, saved tensors and the kind of its gradients.

`cost.gpt` writes the baseline's tape, the `predict` of optimizations rewrites it, and `cost.timeline` plays it forwards
and backwards to count live bytes. It holds shapes and names only, so rewriting a tape is list editing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from assay.cost.collectives import Collective
from assay.cost.tensors import Tensor


class Gradient(Enum):
    """Storage of the gradient that an operation's backward returns for one of its inputs."""

    NONE = "the input has no gradient"
    FRESH = "a new tensor of the input's shape"
    ALIAS = "the output's gradient itself, or a view of it"
    OVERWRITING = "overwrites the tensor that its node reads last, if that is as large; otherwise a new tensor"
    INSIDE = "none: a compiled loop continues with its input"
    INPLACE = "a new tensor that the engine adds into the input's other gradients (a parameter's)"
    VIEWED = "a new tensor under another shape, into which the engine adds nothing"


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


@dataclass(frozen=True)
class Operation:
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
    flops: int = 0
    """FLOPs of forward; a multiply-add counts two."""
    backward_flops: int = 0
    padding_flops: int = 0
    """FLOPs of forward and backward that the model does not need: on padded rows, or recomputed by the operation
    itself."""
    backward: str = ""
    """The autograd node, without its trailing number; it names the instant of a peak."""
    forward_scratch: tuple[Tensor, ...] = ()
    """Temporaries of the forward operation."""
    backward_scratch: tuple[Tensor, ...] = ()
    """Temporaries of the backward operation."""
    sends: Sending | None = None
    """Collective by which forward communicates its result, or its input if it is a reduce-scatter."""
    sends_back: Sending | None = None
    """Collective by which backward communicates the gradient of its first input, or of its result if it is a
    reduce-scatter."""
    exchanges: tuple[Exchange, ...] = ()
    """Further communications, which are neither of the two above."""
    products: str = ""
    """dtype in which a contraction multiplies, if it is not that of its inputs."""
    autocast: str = ""
    """Treatment by autocast, if its kind does not decide it: `float32`, which 16-bit training respects as well, or
    `low`. With `low` the module casts at this use, and the copy is not cached."""
    counts: bool = False
    """True if it counts over the whole batch, so that ranks which share a batch sum their results at once."""
    of_heads: int = 0
    """Number of heads, for a copy that is a view if the micro-batch has one sequence; 0: none."""
    opaque: bool = False
    """True for a function that is not compiled."""
    compiled: bool = False
    """True if a compiler orders it. A loop overwrites a tensor of which it is the last reader, if that is as large. The
    backward of a product with a weight frees the input before it computes the input's gradient."""

    @property
    def own(self) -> "dict[str, Tensor]":
        """Every tensor that it makes, by name."""
        made = (*self.outputs, *self.extras, *self.forward_scratch, *self.backward_scratch)
        return {tensor.name: tensor for tensor in made}

    def within(self, *sites: str) -> bool:
        """True if it belongs to one of the modules `sites` or to a module inside them."""
        return any(self.site == site or self.site.startswith(f"{site}.") for site in sites)

    def reading(self, names: Mapping[str, str]) -> "Operation":
        """The operation with inputs, saved tensors and views renamed by `names`; `holds` stays."""
        inputs, saves = (tuple(names.get(name, name) for name in old) for old in (self.inputs, self.saves))
        outputs = (replace(one, view_of=names.get(one.view_of or "", one.view_of)) for one in self.outputs)
        return replace(self, inputs=inputs, saves=saves, outputs=tuple(outputs))

    def making(self, change: Callable[[Tensor], Tensor]) -> "Operation":
        """The operation with `change` applied to its outputs, extras and scratch."""
        return replace(
            self,
            outputs=tuple(map(change, self.outputs)),
            extras=tuple(map(change, self.extras)),
            forward_scratch=tuple(map(change, self.forward_scratch)),
            backward_scratch=tuple(map(change, self.backward_scratch)),
        )

    def cut(self, parts: int) -> "Operation":
        """The operation on one of `parts` equal parts of the batch."""
        one = self.making(lambda tensor: tensor.cut(parts))
        if self.of_heads and one.outputs[0].shape[0] == self.of_heads:
            one = replace(one, outputs=(replace(one.outputs[0], view_of=one.inputs[0]),))
        return replace(
            one,
            flops=self.flops // parts,
            backward_flops=self.backward_flops // parts,
            padding_flops=self.padding_flops // parts,
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
            outputs=(replace(own, name=f"{own.name} over {axis}"),),
            gradients=(Gradient.NONE,),
            sends=Sending("all_reduce", axis),
            counts=True,
        )
        return (replace(self, counts=False), summed)


Tape = tuple[Operation, ...]


class Writer:
    """Appends operations to a tape and gives each result a unique name."""

    def __init__(self, site: str, values: dict[str, Tensor]) -> None:
        self.site = site
        self.values = values
        """Every tensor that may be read, by name: parameters, the batch, and the results so far."""
        self.operations: list[Operation] = []

    def at(self, site: str) -> "Writer":
        """A writer for a module inside this one, which appends to the same tape."""
        inner = Writer(f"{self.site}.{site}" if self.site else site, self.values)
        inner.operations = self.operations
        return inner

    def made(
        self, label: str, shape: Sequence[int], dtype: str, *, batched: bool = True, of: str | None = None
    ) -> Tensor:
        """Make a new tensor named after the site; `of` makes it a view."""
        name = f"{self.site}:{label}"
        while name in self.values:
            name += "'"
        tensor = Tensor(name, tuple(shape), dtype, batched, of)
        self.values[name] = tensor
        return tensor

    def write(
        self,
        name: str,
        kind: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        gradients: Sequence[Gradient],
        *,
        saves: Sequence[Tensor] = (),
        extras: Sequence[Tensor] = (),
        holds: Sequence[Tensor] = (),
        flops: int = 0,
        backward_flops: int = 0,
        padding_flops: int = 0,
        backward: str = "",
        forward_scratch: Sequence[Tensor] = (),
        backward_scratch: Sequence[Tensor] = (),
        autocast: str = "",
        counts: bool = False,
        exchanges: Sequence[Exchange] = (),
    ) -> None:
        """Append an operation."""
        self.operations.append(
            Operation(
                name=name,
                site=self.site,
                kind=kind,
                inputs=tuple(tensor.name for tensor in inputs),
                outputs=tuple(outputs),
                gradients=tuple(gradients),
                saves=tuple(tensor.name for tensor in saves),
                extras=tuple(extras),
                holds=tuple(tensor.name for tensor in holds),
                flops=flops,
                backward_flops=backward_flops,
                padding_flops=padding_flops,
                backward=backward,
                forward_scratch=tuple(forward_scratch),
                backward_scratch=tuple(backward_scratch),
                autocast=autocast,
                counts=counts,
                exchanges=tuple(exchanges),
            )
        )


def replace_site(tape: Tape, inside: Callable[[str], bool], rewrite: Callable[[Tape], Tape]) -> Tape:
    """Replace each maximal run of operations at one site that satisfies `inside` by `rewrite` of it."""
    result: list[Operation] = []
    run: list[Operation] = []
    for operation in tape:
        if inside(operation.site) and (not run or run[-1].site == operation.site):
            run.append(operation)
            continue
        if run:
            result.extend(rewrite(tuple(run)))
            run = []
        if inside(operation.site):
            run.append(operation)
        else:
            result.append(operation)
    if run:
        result.extend(rewrite(tuple(run)))
    return tuple(result)
