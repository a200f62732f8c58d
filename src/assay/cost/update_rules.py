"""Optimizers as the ledger sees them: the state of each parameter, and the temporaries of its update.

A rule receives this rank's shards of the parameters, so its state and temporaries are those of the shards.

Temporaries of Adam's relatives are read off torch 2.13's loops. Over lists (`foreach`) the denominators of a whole
group are alive at once. One kernel (`fused`) has no temporaries. Decay inside the gradient (Adam) makes a sum for every
decayed parameter. Moments in bfloat16 are widened one parameter at a time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

from assay.cost.kernels import Gpu
from assay.cost.operation import BLANK, DTYPE_BYTES, Tensor, alter

Pieces = Mapping[str, Tensor]


class Instant(NamedTuple):
    """A point of the update: its operation, its parameter, and the bytes of its temporaries."""

    operation: str
    site: str
    nbytes: int
    number_bytes: int = 0
    """Bytes of a Python number that torch wraps in tensors on a CPU."""
    kept_bytes: int = 0
    """Bytes of figures that it leaves until the step ends."""


@dataclass(frozen=True)
class Product:
    """A matrix product of the update, `[rows, inner] × [inner, columns]`, computed `times` times."""

    rows: int
    inner: int
    columns: int
    dtype: str
    times: int = 1

    @property
    def flops(self) -> int:
        """FLOPs of all `times` products; a multiply-add counts two."""
        return 2 * self.rows * self.inner * self.columns * self.times

    @property
    def nbytes(self) -> int:
        """Bytes read and written by all `times` products."""
        sides = self.rows * self.inner + self.inner * self.columns + self.rows * self.columns
        return DTYPE_BYTES[self.dtype] * sides * self.times


@dataclass(frozen=True)
class Traffic:
    """Bytes that an update's operators read and write outside of matrix products, and the number of these operators."""

    nbytes: float
    launches: float

    def plus(self, other: "Traffic") -> "Traffic":
        """The sum of both."""
        return Traffic(self.nbytes + other.nbytes, self.launches + other.launches)


class UpdateRule(Protocol):
    """An optimizer as the ledger sees it; by default it multiplies no matrices."""

    passes: ClassVar[float] = 0.0
    """Reads and writes of a parameter by its update, in units of the parameter's bytes, as counted in a trace."""
    launches: ClassVar[float] = 0.0
    """Number of operators that run for each parameter."""
    counts_on_gpu: ClassVar[bool] = False
    """True if a GPU has the step counts of its parameters; otherwise the host has them."""

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """Tensors that it keeps between steps."""
        ...

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """Instants of its update, in order."""
        ...

    def instants_on(self, gpu: Gpu, pieces: Pieces) -> tuple[Instant, ...]:
        """Instants of its update on a GPU, with what kernels take inside."""
        return self.instants(pieces)

    def products(self, pieces: Pieces) -> tuple[Product, ...]:
        """Matrix products of its update."""
        return ()

    def traffic(self, pieces: Pieces) -> Traffic:
        """Traffic of its update outside of matrix products."""
        return each(pieces, self.passes, self.launches)


@dataclass(frozen=True)
class AdamWUpdate(UpdateRule):
    """Torch's single-tensor AdamW.

    Passes: decay 2, first moment 3, second moment 2 + 4, root 2, division 2, sum 2, update 4.
    """

    cautious: bool = False
    """True if decay spares some elements; the loop is then ours, whose denominator is divided in place."""
    passes: ClassVar = 21.0
    launches: ClassVar = 8.5

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """Two moments for each parameter, and its step count."""
        return (*like(pieces, 2), *counts(pieces))

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """√v and √v/√(1−β₂ᵗ), and the previous parameter's denominator, which the loop variable still holds."""
        if self.cautious:
            return tuple(Instant("CautiousAdamW", one.name, one.nbytes, beside(one)) for one in in_order(pieces))
        return tuple(
            Instant("AdamW", tensor.name, before + 2 * tensor.nbytes, beside(tensor))
            for group in groups(pieces)
            for before, tensor in after_another(group)
        )

    def traffic(self, pieces: Pieces) -> Traffic:
        """Passes over every parameter, and those of cautious decay."""
        own = super().traffic(pieces)
        return own.plus(comparison_traffic(pieces)) if self.cautious else own


def comparison_traffic(pieces: Pieces) -> Traffic:
    """Traffic that cautious decay adds for each decayed parameter: sign 2, product 3, comparison and factor 6, decay 1.

    The plain decay reads and writes a weight; this one reads a factor beside it.
    """
    return each({one.name: one for one in groups(pieces)[0]}, 12.0, 5)


def beside(tensor: Tensor) -> int:
    """Bytes of a Python number in an operation with a tensor: a float64, and its copy in the tensor's dtype."""
    return DTYPE_BYTES["float64"] + DTYPE_BYTES[tensor.dtype]


def each(pieces: Pieces, passes: float, launches: float) -> Traffic:
    """Traffic of `passes` and `launches` for every parameter."""
    return Traffic(passes * sum(one.nbytes for one in pieces.values()), launches * len(pieces))


def like(pieces: Pieces, times: int = 1) -> tuple[Tensor, ...]:
    """Some tensors of each parameter's shape. They keep the parameter's name, because nothing asks for theirs."""
    return tuple([one for one in pieces.values() for _ in range(times)])


COUNT = alter(BLANK, name="step", dtype="float32", batched=False)
"""The step count of a parameter."""


def counts(pieces: Pieces) -> tuple[Tensor, ...]:
    """The step count of every parameter."""
    return (COUNT,) * len(pieces)


def groups(pieces: Pieces) -> tuple[list[Tensor], list[Tensor]]:
    """The optimizer's two groups, in its order: parameters with decay (two or more dimensions), and the rest."""
    decayed = [tensor for tensor in pieces.values() if len(tensor.shape) > 1]
    return decayed, [tensor for tensor in pieces.values() if len(tensor.shape) < 2]


def in_order(pieces: Pieces) -> Iterator[Tensor]:
    """Every parameter, group after group."""
    for group in groups(pieces):
        yield from group


def after_another(group: Sequence[Tensor]) -> Iterator[tuple[int, Tensor]]:
    """Each tensor with the bytes of its predecessor, which the loop variable still holds when its turn begins."""
    yield from zip((0, *(tensor.nbytes for tensor in group)), group, strict=False)


@dataclass(frozen=True)
class OnHost(UpdateRule):
    """Any rule whose state and update are on the host."""

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """No tensors on the device."""
        return ()

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """One instant: gradients wait until the last weight has been copied back."""
        return (Instant("copies to and from the host", "", 0),)


@dataclass(frozen=True)
class FusedAdamWUpdate(AdamWUpdate):
    """One kernel for each group, which reads weight, gradient and moments and writes all but the gradient."""

    passes: ClassVar = 7.0
    launches: ClassVar = 0.0
    counts_on_gpu: ClassVar = True

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """One instant without temporaries."""
        return (Instant("AdamW", "", 0),)


@dataclass(frozen=True)
class ClippingAdamW(FusedAdamWUpdate):
    """One kernel that also clips each gradient, and writes it."""

    passes: ClassVar = 8.0


@dataclass(frozen=True)
class ForeachAdamWUpdate(AdamWUpdate):
    """One kernel for each operation over all tensors of a group."""

    launches: ClassVar = 0.0

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """√v of a whole group at once."""
        return tuple(Instant("AdamW", "", _nbytes(group)) for group in groups(pieces) if group)


@dataclass(frozen=True)
class AdamUpdate(AdamWUpdate):
    """Torch's single-tensor Adam with weight decay in the gradient."""

    passes: ClassVar = 22.0

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """AdamW's temporaries; decayed parameters add `grad + λ·weight`."""
        decayed, spared = groups(pieces)
        return tuple(
            Instant("Adam", tensor.name, before + made * tensor.nbytes, beside(tensor))
            for group, made in ((decayed, 3), (spared, 2))
            for before, tensor in after_another(group)
        )


@dataclass(frozen=True)
class NarrowAdamWUpdate(UpdateRule):
    """Our AdamW with moments in bfloat16."""

    passes: ClassVar = 28.0
    launches: ClassVar = 14.0

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """Two moments in bfloat16 for each parameter, and its step count."""
        return (*(one.cast("bfloat16") for one in like(pieces, 2)), *counts(pieces))

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """Both moments of one parameter, widened."""
        return tuple(Instant("NarrowAdamW", one.name, 2 * one.nbytes, beside(one)) for one in in_order(pieces))


def _nbytes(group: list[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in group)


@dataclass(frozen=True)
class SGDUpdate(UpdateRule):
    """Torch's single-tensor SGD, with weight decay inside the gradient."""

    momentum: bool
    nesterov: bool
    decays: bool

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """A momentum for each parameter, if there is momentum."""
        return like(pieces) if self.momentum else ()

    def traffic(self, pieces: Pieces) -> Traffic:
        """Passes: the gradient with its decay 3, the momentum 2 + 3, Nesterov's gradient 3, the step 3."""
        own = each(pieces, 5.0 * self.momentum + 3.0 * self.nesterov + 3.0, 2 * self.momentum + self.nesterov + 1)
        decayed = {one.name: one for one in groups(pieces)[0]}
        return own.plus(each(decayed, 3.0, 1)) if self.decays else own

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """The gradient with its decay, and Nesterov's gradient, or else the number that multiplies the momentum."""
        decayed, spared = groups(pieces)
        multiplied = self.decays and self.momentum and not self.nesterov
        return tuple(
            Instant("SGD", tensor.name, made * tensor.nbytes, beside(tensor) if number else 0)
            for group, made, number in (
                (decayed, self.decays + self.nesterov, multiplied),
                (spared, int(self.nesterov), False),
            )
            for tensor in group
        )


@dataclass(frozen=True)
class LionUpdate(UpdateRule):
    """Our Lion. Passes: decay 2, direction 3 + 2 + 3, momentum 3."""

    cautious: bool = False
    """True if decay spares some elements."""
    passes: ClassVar = 13.0
    launches: ClassVar = 5.0

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """A momentum for each parameter."""
        return like(pieces)

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """The signs of one parameter's direction, the factors of its elements where decay is cautious, and a number.

        The number is the factor of the decay; a cautious one multiplies nothing where there is no decay.
        """
        decayed, spared = groups(pieces)
        return tuple(
            Instant("Lion", one.name, made * one.nbytes, beside(one) if number else 0)
            for group, made, number in ((decayed, 1 + self.cautious, True), (spared, 1, not self.cautious))
            for one in group
        )

    def traffic(self, pieces: Pieces) -> Traffic:
        """Passes over every parameter, and those of cautious decay."""
        own = super().traffic(pieces)
        return own.plus(comparison_traffic(pieces)) if self.cautious else own
