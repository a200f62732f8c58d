"""Attention within documents: the mask of a packed batch, which all layers share.

A token that ends a document is the last of it. Positions go on over a whole row.
"""

import torch
from torch import Tensor, nn

from assay.config import ModelConfig
from assay.model.attention import HandCodedAttention, future
from assay.records.trace import ENDED
from assay.step.prepared import PreparedSequences


class DocumentMask(PreparedSequences):
    """The mask of the batch that is computed now. The embedding's hook makes it from the token ids."""

    def __init__(self, end: int, context_length: int) -> None:
        super().__init__(ENDED)
        self.end, self.context_length = end, context_length
        self.blocked: Tensor | None = None
        """True for keys that are later than the query or of another document, `[B, 1, T, T]`."""

    def read(self, module: nn.Module, given: tuple[Tensor, ...]) -> None:
        """Write the mask of token ids `[B, T]`, the first argument of a module, in the place of the former one."""
        (ids,) = given
        rows, length = ids.shape
        self.sequences += self._ended(ids)
        ends = ids == self.end
        document = ends.cumsum(1) - ends.long()
        if self.blocked is None or self.blocked.shape != (rows, 1, length, length):
            with torch.inference_mode(False):
                self.blocked = torch.empty(rows, 1, length, length, dtype=torch.bool, device=ids.device)
        torch.ne(document[:, None, :, None], document[:, None, None, :], out=self.blocked)
        self.blocked.logical_or_(future(self.context_length, ids.device)[:length, :length])

    def _ended(self, ids: Tensor) -> int:
        """Rows in which a document ends; all of them where counting would wait for a GPU, or for values at all."""
        if type(ids) is not Tensor or ids.device.type != "cpu":
            return ids.size(0)
        return int((ids.numpy() == self.end).any(1).sum())


class DocumentAttention(HandCodedAttention):
    """Hand-coded attention whose queries see keys of their own document only."""

    def __init__(self, config: ModelConfig, mask: DocumentMask) -> None:
        super().__init__(config)
        self.mask = mask

    def blocked(self, q: Tensor) -> Tensor:
        """Return the mask of the batch, which must be the one that the queries belong to."""
        mask = self.mask.blocked
        if mask is None or mask.size(0) != q.size(0) or mask.size(-1) != q.size(-2):
            raise RuntimeError(f"the mask of documents is not that of queries of shape {tuple(q.shape)}")
        return mask


def attend_within_documents(part: nn.Module, config: ModelConfig, mask: DocumentMask) -> None:
    """Have each attention of a model keep to the documents of a mask, which the embedding makes."""
    for module in part.modules():
        if isinstance(getattr(module, "core", None), HandCodedAttention):
            module.core = DocumentAttention(config, mask)
    embedding: nn.Module = part.get_submodule("embedding")
    embedding.register_forward_pre_hook(mask.read)
