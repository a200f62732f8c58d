"""A cache of keys and values: tokens that were seen are not computed again while a text grows.

The keys and values of a token depend only on the tokens before it, so each layer keeps them. A new token then costs
one row of every product instead of the whole window, and reads all cached keys and values once. For each token the
cache has 2 · n_layer · kv_heads · head_dim numbers. Grouped queries share heads of keys, so their cache is smaller.

The cache has room for `context_length` tokens. A full cache is filled again with the second half of them. A position
belongs to a place in the window, so old keys cannot just move up. Of a mixture whose experts have few places, a whole
window may drop choices that single tokens do not.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from assay.model.attention import Attention
from assay.model.gpt import GPT


class _CachedCore(nn.Module):
    """The core of one layer's attention, with the keys and values of all tokens so far."""

    def __init__(self, core: nn.Module, keys: Tensor, values: Tensor) -> None:
        super().__init__()
        self.core, self.keys, self.values = core, keys, values
        self.length = 0

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Keep `k` and `v [B, kv_heads, T, d]`, and attend from `q [B, heads, T, d]` to all that is kept."""
        first, last = self.length, self.length + q.size(-2)
        self.keys[:, :, first:last], self.values[:, :, first:last] = k, v
        self.length = last
        if first == 0:
            attended: Tensor = self.core(q, k, v)
            return attended
        groups = q.size(1) // k.size(1)
        keys, values = (x[:, :, :last].repeat_interleave(groups, dim=1) for x in (self.keys, self.values))
        scores = (q @ keys.transpose(-2, -1)) * (1.0 / math.sqrt(q.size(-1)))
        if q.size(-2) > 1:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1 + first)
            scores = scores.masked_fill(later, float("-inf"))
        return scores.softmax(dim=-1) @ values


class KeyValueCache:
    """Keys and values of a model's layers, for `sequences` sequences of equal length."""

    def __init__(self, model: GPT, sequences: int = 1) -> None:
        self._model = model
        config, weight = model.config, next(model.parameters())
        shape = (sequences, config.kv_heads, config.context_length, config.head_dim)
        self._layers = [one for one in model.modules() if isinstance(one, Attention)]
        self._cores = [
            _CachedCore(one.core, *(torch.empty(shape, dtype=weight.dtype, device=weight.device) for _ in range(2)))
            for one in self._layers
        ]

    @property
    def length(self) -> int:
        """Number of tokens in the cache, in each sequence."""
        return self._cores[0].length

    @property
    def nbytes(self) -> int:
        """Bytes of the room for `context_length` tokens, in all layers and sequences."""
        return sum(one.keys.nbytes + one.values.nbytes for one in self._cores)

    def clear(self) -> None:
        """Forget all tokens."""
        for core in self._cores:
            core.length = 0

    @torch.inference_mode()
    def logits(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Take further tokens of every sequence, and return the logits of the next one, `[sequences, vocab_size]`.

        Raises `ValueError` if the tokens do not fit into the context.
        """
        tokens = torch.tensor(ids, device=self._cores[0].keys.device)
        last = self.length + tokens.size(1)
        if last > self._model.config.context_length:
            raise ValueError(f"{last} tokens do not fit into a context of {self._model.config.context_length}")
        with self._installed(torch.arange(self.length, last, device=tokens.device)):
            return self._model.head.logits(self._model.hidden(tokens)[:, -1])

    @contextmanager
    def _installed(self, positions: Tensor) -> Iterator[None]:
        """Let the model use the cache for tokens at these positions, without dropout; afterwards it is as before."""
        model, was_training = self._model, self._model.training
        model.eval()
        model.embedding.positions = positions
        for layer, core in zip(self._layers, self._cores, strict=True):
            layer.core, layer.positions = core, positions
        try:
            yield
        finally:
            model.embedding.positions = None
            for layer, core in zip(self._layers, self._cores, strict=True):
                layer.core, layer.positions = core.core, None
            model.train(was_training)
