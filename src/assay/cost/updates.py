"""What an optimizer keeps of each parameter, and what its update makes on the way: a rule that the ledger asks.

The rule is asked with what lies here of the parameters, so a rank that holds pieces keeps and makes pieces.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from assay.cost.tensors import DTYPE_BYTES, Tensor

Pieces = Mapping[str, Tensor]


@dataclass(frozen=True)
class Instant:
    """A moment of the update: what runs, on which parameter, and its bytes beside what is held anyway."""

    operation: str
    site: str
    nbytes: int


@dataclass(frozen=True)
class Product:
    """A matrix product of the update, `[rows, inner] × [inner, columns]`, done so many times."""

    rows: int
    inner: int
    columns: int
    dtype: str
    times: int = 1

    @property
    def flops(self) -> int:
        """Of all times together; a multiply-add counts two."""
        return 2 * self.rows * self.inner * self.columns * self.times

    @property
    def nbytes(self) -> int:
        """Read and written, all times together."""
        sides = self.rows * self.inner + self.inner * self.columns + self.rows * self.columns
        return DTYPE_BYTES[self.dtype] * sides * self.times


@dataclass(frozen=True)
class Traffic:
    """What the operators of an update that multiply no matrices read and write, and how many there are."""

    nbytes: float
    launches: float

    def plus(self, other: "Traffic") -> "Traffic":
        """Both."""
        return Traffic(self.nbytes + other.nbytes, self.launches + other.launches)


class UpdateRule(Protocol):
    """An optimizer, as far as the ledger sees it. Those that multiply no matrices inherit that."""

    passes: ClassVar[float] = 0.0
    """Reads and writes of a parameter's bytes by its update, as counted in a trace."""
    launches: ClassVar[float] = 0.0
    """Operators that run for a parameter."""

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """What it keeps between steps."""
        ...

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """What its update makes, in order."""
        ...

    def products(self, pieces: Pieces) -> tuple[Product, ...]:
        """What its update multiplies."""
        return ()

    def traffic(self, pieces: Pieces) -> Traffic:
        """What its update reads and writes otherwise."""
        return each(pieces, self.passes, self.launches)


@dataclass(frozen=True)
class AdamW(UpdateRule):
    """Torch's single-tensor AdamW.

    Passes: decay 2, first moment 3, second moment 2 + 4, root 2, division 2, sum 2, update 4.
    """

    passes: ClassVar = 21.0
    launches: ClassVar = 8.5

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """Two moments a parameter, and its step count."""
        return (*like(pieces, "exp_avg", "exp_avg_sq"), *counts(pieces))

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """√v and √v/√(1−β₂ᵗ), beside the previous parameter's denominator, which the loop variable still holds."""
        return tuple(
            Instant("AdamW", tensor.name, before + 2 * tensor.nbytes)
            for group in groups(pieces)
            for before, tensor in after_another(group)
        )


def each(pieces: Pieces, passes: float, launches: float) -> Traffic:
    """So much of every parameter."""
    return Traffic(passes * sum(one.nbytes for one in pieces.values()), launches * len(pieces))


def like(pieces: Pieces, *labels: str) -> tuple[Tensor, ...]:
    """A tensor of each label for every parameter, shaped as it is."""
    return tuple(replace(one, name=f"{label}.{one.name}") for one in pieces.values() for label in labels)


def counts(pieces: Pieces) -> tuple[Tensor, ...]:
    """The number of updates of every parameter."""
    return tuple(Tensor(f"step.{name}", (), "float32", batched=False) for name in pieces)


def groups(pieces: Pieces) -> tuple[list[Tensor], list[Tensor]]:
    """As the optimizer is given them, and goes through them: what decays, of two and more dimensions, and the rest."""
    decayed = [tensor for tensor in pieces.values() if len(tensor.shape) > 1]
    return decayed, [tensor for tensor in pieces.values() if len(tensor.shape) < 2]


def in_order(pieces: Pieces) -> Iterator[Tensor]:
    """Every parameter, group after group."""
    for group in groups(pieces):
        yield from group


def after_another(group: Sequence[Tensor]) -> Iterator[tuple[int, Tensor]]:
    """Each tensor with the bytes of the one before it, which a loop's variable still holds when its turn begins."""
    yield from zip((0, *(tensor.nbytes for tensor in group)), group, strict=False)
