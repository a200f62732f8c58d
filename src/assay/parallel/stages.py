"""A decoder cut into stages: consecutive blocks, the embedding with the first and the head with the last.

Parameters keep the names that they have in the whole model. Which stages a rank has is arithmetic: `cost.stages`.
"""

from torch import Tensor, nn

from assay.cost.stages import Split
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


def cut(model: GPT, split: Split, rank: int) -> tuple[Stage, ...]:
    """The stages of a rank as modules; the model's blocks are dealt evenly, which its caller has checked."""
    size = len(model.blocks) // split.count
    return tuple(Stage(model, index * size, size) for index in split.of(rank))
