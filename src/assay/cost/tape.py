"""The forward pass as data: every operation with what it reads, makes, keeps for backward, and how gradients return.

A tape is written by `cost.gpt` for the baseline and rewritten by the `predict` of optimizations; `cost.timeline` plays
it forwards and backwards and watches memory. It holds shapes and names only, so rewriting one is list editing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from assay.cost.collectives import Collective
from assay.cost.tensors import Tensor


class Gradient(Enum):
    """How an operation's backward hands a gradient to one of its inputs."""

    NONE = "the input has no gradient"
    FRESH = "a new tensor of the input's shape"
    ALIAS = "the output's gradient itself, or a view of it"
    OVERWRITING = "written over what its node reads last, where that is as large; else a new tensor"
    INSIDE = "none: a compiled loop goes on with what came in"
    INPLACE = "a new tensor that the engine adds into the input's other gradients (a parameter's)"
    VIEWED = "a new tensor under another shape, into which the engine adds nothing"


class Sending(NamedTuple):
    """A collective, and the mesh axis whose ranks it joins."""

    collective: Collective
    axis: str


class Exchange(NamedTuple):
    """What an operation of many messages hands over: a tensor of its own, in forward or in backward."""

    sending: Sending
    of: str
    """One of its outputs, extras or scratch, by name."""
    times: int = 1
    back: bool = False


@dataclass(frozen=True)
class Operation:
    """One operation of the forward pass, and what its backward does."""

    name: str
    """torch's operator."""
    site: str
    """The module path, for instance `blocks.0.attention.core`."""
    kind: str
    """contraction, normalization, elementwise or movement."""
    inputs: tuple[str, ...]
    outputs: tuple[Tensor, ...]
    gradients: tuple[Gradient, ...]
    """One per input."""
    saves: tuple[str, ...] = ()
    """Names of inputs, outputs or extras kept for backward."""
    extras: tuple[Tensor, ...] = ()
    """Results that no other operation reads: statistics, dropout noise."""
    holds: tuple[str, ...] = ()
    """Names that the caller's frame keeps alive until this has run, though it does not read them."""
    flops: int = 0
    """Of the forward; a multiply-add counts two."""
    backward_flops: int = 0
    padding_flops: int = 0
    """Of both together: executed in vain, on rows that hold nothing, or again in backward by the operation itself."""
    backward: str = ""
    """The autograd node, without its trailing number, for naming the instant of a peak."""
    forward_scratch: tuple[Tensor, ...] = ()
    """Held only while the forward operation runs."""
    backward_scratch: tuple[Tensor, ...] = ()
    """Held only while the backward operation runs."""
    sends: Sending | None = None
    """What its forward does with its first result, among ranks."""
    sends_back: Sending | None = None
    """What its backward does with the gradient of its first input."""
    exchanges: tuple[Exchange, ...] = ()
    """What it sends where that is neither of the two."""
    products: str = ""
    """The format in which a contraction multiplies, where it is not the dtype of its inputs."""
    autocast: str = ""
    """How autocast treats it, where not by its kind: `float32`, which full 16 bits respect as well, or `low`: the
    module casts at this use, uncached."""
    counts: bool = False
    """Whether it counts over the whole batch, so that ranks which share one add up their results at once."""
    of_heads: int = 0
    """A copy only because several sequences lie apart: of one, with so many heads, it is a view."""
    opaque: bool = False
    """A function that a compiler is kept out of."""
    compiled: bool = False
    """Whether a compiler orders it: a loop writes over what it reads last, where that is as large, and the backward of
    a product with a weight lets go of its other factor before it makes that one's gradient."""

    @property
    def own(self) -> "dict[str, Tensor]":
        """Everything that it makes, by name."""
        made = (*self.outputs, *self.extras, *self.forward_scratch, *self.backward_scratch)
        return {tensor.name: tensor for tensor in made}

    def within(self, *sites: str) -> bool:
        """Whether it belongs to one of the modules `sites` or to one inside them."""
        return any(self.site == site or self.site.startswith(f"{site}.") for site in sites)

    def reading(self, names: Mapping[str, str]) -> "Operation":
        """The operation on values of other names, for those that have one; what its module's frame holds stays.

        A view of such a value becomes a view of the other.
        """
        inputs, saves = (tuple(names.get(name, name) for name in old) for old in (self.inputs, self.saves))
        outputs = (replace(one, view_of=names.get(one.view_of or "", one.view_of)) for one in self.outputs)
        return replace(self, inputs=inputs, saves=saves, outputs=tuple(outputs))

    def making(self, change: Callable[[Tensor], Tensor]) -> "Operation":
        """The operation with everything that it makes, for others or on the way, changed."""
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
        """The operation where a batch is shared along an axis: a count is followed by its sum."""
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
    """Writes operations one after the other, giving each result a name that no other has."""

    def __init__(self, site: str, values: dict[str, Tensor]) -> None:
        self.site = site
        self.values = values
        """Every tensor that may be read, by name: parameters, the batch, and what was made so far."""
        self.operations: list[Operation] = []

    def at(self, site: str) -> "Writer":
        """A writer for a module inside this one, writing to the same tape."""
        inner = Writer(f"{self.site}.{site}" if self.site else site, self.values)
        inner.operations = self.operations
        return inner

    def made(
        self, label: str, shape: Sequence[int], dtype: str, *, batched: bool = True, of: str | None = None
    ) -> Tensor:
        """Name a new tensor after its site; `of` makes it a view."""
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
    """Exchange each maximal run of operations whose site satisfies `inside` for what `rewrite` makes of it."""
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
