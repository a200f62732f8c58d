"""What an optimizer keeps of each parameter, and what its update makes on the way: a rule that the ledger asks.

The rule is asked with what lies here of the parameters, so a rank that holds pieces keeps and makes pieces.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from assay.cost.tensors import Tensor

Pieces = Mapping[str, Tensor]


@dataclass(frozen=True)
class Instant:
    """A moment of the update: what runs, on which parameter, and its bytes beside what is held anyway."""

    operation: str
    site: str
    nbytes: int


class UpdateRule(Protocol):
    """An optimizer, as far as the ledger sees it."""

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """What it keeps between steps."""
        ...

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """What its update makes, in order."""
        ...


@dataclass(frozen=True)
class AdamW:
    """Torch's single-tensor AdamW."""

    def state(self, pieces: Pieces) -> tuple[Tensor, ...]:
        """Two moments a parameter, and its step count."""
        moments = tuple(
            replace(tensor, name=f"{label}.{tensor.name}")
            for tensor in pieces.values()
            for label in ("exp_avg", "exp_avg_sq")
        )
        counts = tuple(Tensor(f"step.{name}", (), "float32", batched=False) for name in pieces)
        return moments + counts

    def instants(self, pieces: Pieces) -> tuple[Instant, ...]:
        """√v and √v/√(1−β₂ᵗ), beside the previous parameter's denominator, which the loop variable still holds."""
        order = decayed_first(pieces)
        previous = [0, *(tensor.nbytes for tensor in order)]
        return tuple(
            Instant("AdamW", tensor.name, before + 2 * tensor.nbytes)
            for before, tensor in zip(previous, order, strict=False)
        )


def decayed_first(pieces: Pieces) -> list[Tensor]:
    """In the order of the optimizer's groups: what has two and more dimensions decays, and comes first."""
    order = [tensor for tensor in pieces.values() if len(tensor.shape) > 1]
    return order + [tensor for tensor in pieces.values() if len(tensor.shape) < 2]
