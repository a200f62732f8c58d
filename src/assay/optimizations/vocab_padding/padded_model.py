"""A vocabulary padded with rows that belong to no token, so that its size suits the hardware.

A padded logit must never win or contribute to the softmax. It is set to −∞ by a bias, fused with the product, that is 0
for tokens. Its probability is then exactly 0, and so is the gradient of every padding row. The rows start at 0, which
neither weight decay nor an optimizer changes. Checkpoints therefore lose nothing by omitting them.
"""

from collections.abc import Callable
from functools import lru_cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.model.gpt import TIED, Embedding, Head, tie
from assay.optimizations.vocab_padding import PADDED


def pad_vocabulary(part: nn.Module, tokens: int, rows: int) -> None:
    """Widen the embedding and the head of a part from `tokens` to `rows` rows, in place, before it is built."""
    tied = {name for name, _ in part.named_parameters()} & set(PADDED)
    for module in part.modules():
        if isinstance(module, Embedding):
            _widen(module.token, rows)
            module.token.num_embeddings = rows
        elif isinstance(module, Head):
            _widen(module.projection, rows)
            module.projection.out_features = rows
            module.projection.forward = partial(_logits, module.projection, tokens)  # type: ignore[method-assign]
    if len(tied) == 1:
        tie(part, TIED)


def zero_padding(initialize: Callable[[str, torch.Size], Tensor], tokens: int) -> Callable[[str, torch.Size], Tensor]:
    """Return an initialization with the values of `initialize` for tokens, and zeros for the padding rows."""

    def padded(name: str, shape: torch.Size) -> Tensor:
        if name not in PADDED:
            return initialize(name, shape)
        first = initialize(name, torch.Size((tokens, *shape[1:])))
        return F.pad(first, (0, 0, 0, shape[0] - tokens))

    return padded


def _widen(module: nn.Embedding | nn.Linear, rows: int) -> None:
    module.weight = nn.Parameter(module.weight.new_empty((rows, *module.weight.shape[1:])))


def _logits(projection: nn.Linear, tokens: int, x: Tensor) -> Tensor:
    return F.linear(x, projection.weight, _barred(tokens, len(projection.weight), x.device, projection.weight.dtype))


@lru_cache(maxsize=4)
def _barred(tokens: int, rows: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the bias `[rows]`: 0 for tokens, −∞ for padding rows."""
    with torch.inference_mode(False):
        return torch.zeros(rows, device=device, dtype=dtype).index_fill_(
            0, torch.arange(tokens, rows, device=device), float("-inf")
        )
