"""A decoder cut into stages: consecutive blocks, the embedding with the first and the head with the last.

Parameters keep the names that they have in the whole model. Where a rank owns several stages, they lie a loop apart
(stage i on rank i mod p, arXiv:2104.04473) or, for the V-shaped schedule, in a vee (arXiv:2401.10241), which puts the
first and the last stage on one rank.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from assay.model import GPT


class Stage(nn.Module):
    """Some consecutive blocks of a decoder, under their names in the whole of it."""

    def __init__(self, model: GPT, first: int, count: int) -> None:
        super().__init__()
        last = first + count
        self.embedding = model.embedding if first == 0 else None
        self.blocks = nn.ModuleDict({str(index): model.blocks[index] for index in range(first, last)})
        self.head = model.head if last == len(model.blocks) else None

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """Token ids or the stage before's output → `[B, T, n_embd]`, or from the last stage the summed loss."""
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.blocks.values():
            x = block(x)
        if self.head is None:
            return x
        if targets is None:
            raise ValueError("the last stage needs the targets")
        loss: Tensor = self.head(x, targets)
        return loss


@dataclass(frozen=True)
class Split:
    """Which stages there are, and which are on one rank."""

    ranks: int
    per_rank: int
    vee: bool = False

    @property
    def count(self) -> int:
        """Stages on all ranks."""
        return self.ranks * self.per_rank

    def of(self, rank: int) -> tuple[int, ...]:
        """The stages of a rank, in the order in which data flows through them."""
        if self.vee:
            return (rank, 2 * self.ranks - 1 - rank)
        return tuple(range(rank, self.count, self.ranks))

    def cut(self, model: GPT, rank: int) -> tuple[Stage, ...]:
        """The stages of a rank as modules; the model's blocks are dealt evenly, which its caller has checked."""
        size = len(model.blocks) // self.count
        return tuple(Stage(model, index * size, size) for index in self.of(rank))
