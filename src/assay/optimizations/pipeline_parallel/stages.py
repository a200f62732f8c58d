"""A decoder cut into stages: consecutive blocks, the embedding with the first and the head with the last.

Parameters keep the names that they have in the whole model. `cost.pipeline.stages` computes which stages a rank has.
"""

from torch import Tensor, nn

from assay.cost.pipeline.stages import Split
from assay.model import GPT


class PipelineStage(nn.Module):
    """Consecutive blocks of a decoder, under their names in the whole model."""

    def __init__(self, model: GPT, blocks: range) -> None:
        super().__init__()
        self.embedding = model.embedding if blocks.start == 0 else None
        self.blocks = nn.ModuleDict({str(index): model.blocks[index] for index in blocks})
        self.head = model.head if blocks.stop == len(model.blocks) else None

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """Return `[B, T, n_embd]`, or the summed loss on the last stage, from token ids or the previous stage's output.

        Raises `ValueError` if the last stage has no targets.
        """
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


def cut(model: GPT, split: Split, rank: int) -> tuple[PipelineStage, ...]:
    """Return the stages of a rank as modules; the caller has checked that the split covers all blocks."""
    return tuple(PipelineStage(model, split.blocks_of(index, len(model.blocks))) for index in split.of(rank))
