"""Sample text from a model, one token at a time: softmax(logits / temperature) over the `top_k` likeliest tokens.

A cache has the keys and values of earlier tokens, so each token costs one row of the model's products. A full cache is
filled again with the second half of its tokens. Without a cache, every token is computed from the last
`context_length` tokens; up to that length the two give the same tokens, but for rounding.

Temperature 0 takes the likeliest token. Draws are made from a seed, in float64 on the CPU, so that a seed has the same
meaning on every device.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from assay.errors import UsageError
from assay.model.cache import KeyValueCache
from assay.model.gpt import GPT

_UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""Replacement character, which decoders return for the bytes of an incomplete character."""


def generate(
    model: GPT,
    ids: Sequence[int],
    tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
    *,
    cache: bool = True,
) -> Iterator[int]:
    """Continue `ids` by `tokens` ids, each yielded when it is drawn; dropout is off, the model's mode is restored.

    Without `cache`, every token is computed from the whole window before it.

    Raises `UsageError`, before anything is drawn, for an empty prompt, a negative temperature and a `top_k` below 1.
    Drawing raises `UsageError` if the logits are not finite.
    """
    if not ids:
        raise UsageError("the prompt is empty; give at least one character")
    if not temperature >= 0:
        raise UsageError(
            f"a temperature of {temperature} is not possible; use 0 for the likeliest token, or a positive number"
        )
    if top_k is not None and top_k < 1:
        raise UsageError(f"top_k={top_k} is not possible; use 1 or more, or leave it out")
    after: Callable[[list[int]], Tensor] = _Cached(model).logits if cache else partial(_window_logits, model)
    return _continue(after, list(ids), tokens, lambda logits, draw: _choose(logits, temperature, top_k, draw), seed)


def pieces(decode: Callable[[Sequence[int]], str], prompt: Sequence[int], ids: Iterable[int]) -> Iterator[str]:
    """Yield the text that each id adds, delayed while a character is incomplete.

    A few earlier ids are decoded too, since the text of an id may depend on its neighbours.
    """
    known = list(prompt)
    start, shown = max(0, len(known) - 4), len(known)
    for one in ids:
        known.append(one)
        before, text = decode(known[start:shown]), decode(known[start:])
        if len(text) > len(before) and not text.endswith(_UNFINISHED):
            yield text[len(before) :]
            start, shown = max(start, shown - 4), len(known)
    if shown < len(known):
        yield decode(known[start:])[len(decode(known[start:shown])) :]


def _continue(
    after: Callable[[list[int]], Tensor],
    ids: list[int],
    tokens: int,
    choose: Callable[[Tensor, torch.Generator], int],
    seed: int,
) -> Iterator[int]:
    draw = torch.Generator().manual_seed(seed)
    for _ in range(tokens):
        logits = after(ids).double().cpu()
        if not logits.isfinite().all():
            raise UsageError(
                "the outputs of the model are not finite, so no token can be sampled; use an earlier checkpoint"
            )
        ids.append(choose(logits, draw))
        yield ids[-1]


class _Cached:
    """The logits after a growing text, by a cache of its keys and values."""

    def __init__(self, model: GPT) -> None:
        self._cache = KeyValueCache(model)
        self._room = model.config.context_length
        self._seen = 0
        """Number of tokens of the text that the cache has taken; earlier ones may have left it."""

    def logits(self, ids: Sequence[int]) -> Tensor:
        """Return the logits `[vocab_size]` of the token after `ids`, which begin as in the last call."""
        new = ids[self._seen :]
        if self._cache.length + len(new) > self._room:
            new = ids[-self._room :] if self._seen == 0 else ids[-((self._room + 1) // 2) :]
            self._cache.clear()
        self._seen = len(ids)
        return self._cache.logits([new])[0]


@torch.inference_mode()
def _window_logits(model: GPT, ids: Sequence[int]) -> Tensor:
    """Return the logits `[vocab_size]` of the token after `ids`, computed from the last `context_length` of them."""
    window = torch.tensor([ids[-model.config.context_length :]], device=next(model.parameters()).device)
    was_training = model.training
    model.eval()
    try:
        return model.head.logits(model.hidden(window)[:, -1])[0]
    finally:
        model.train(was_training)


def _choose(logits: Tensor, temperature: float, top_k: int | None, draw: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    likeliest = logits.topk(min(top_k or logits.numel(), logits.numel()))
    chances = ((likeliest.values - likeliest.values[0]) / temperature).softmax(dim=-1)
    return int(likeliest.indices[torch.multinomial(chances, 1, generator=draw)])
