"""Optimizers of at most one moment, as the ledger sees them: SGD and Lion."""

from dataclasses import dataclass

from assay.cost.tensors import Tensor
from assay.cost.updates import Instant, Pieces, UpdateRule, groups, in_order, like


@dataclass(frozen=True)
class SGD(UpdateRule):
    """Torch's single-tensor SGD, with decay inside the gradient."""

    momentum: bool
    nesterov: bool
    decays: bool

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """A momentum a parameter, if there is momentum."""
        return like(pieces, "momentum_buffer") if self.momentum else ()

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """The gradient with its decay, and the gradient that looks ahead."""
        decayed, spared = groups(pieces)
        return tuple(
            Instant("SGD", tensor.name, made * tensor.nbytes)
            for group, made in ((decayed, self.decays + self.nesterov), (spared, int(self.nesterov)))
            for tensor in group
        )


@dataclass(frozen=True)
class Lion(UpdateRule):
    """Our Lion."""

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """A momentum a parameter."""
        return like(pieces, "exp_avg")

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """The signs of one parameter."""
        return tuple(Instant("Lion", one.name, one.nbytes) for one in in_order(pieces))
