"""Optimizers with at most one moment, as the ledger sees them: SGD and Lion."""

from dataclasses import dataclass
from typing import ClassVar

from assay.cost.operation import Tensor
from assay.cost.optimizers.updates import (
    Instant,
    Pieces,
    Traffic,
    UpdateRule,
    beside,
    comparison_traffic,
    each,
    groups,
    like,
)


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
