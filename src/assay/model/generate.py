"""Sample text from a model, one token at a time: softmax(logits / temperature) over the `top_k` likeliest tokens.

Every token is computed from the last `context_length` tokens, without a cache of keys and values, which costs little
for small models. Temperature 0 takes the likeliest token. Draws are made from a seed, in float64 on the CPU, so that
a seed has the same meaning on every device.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

from assay.errors import UsageError
from assay.model.gpt import GPT

_UNFINISHED = "\N{REPLACEMENT CHARACTER}"
"""Replacement character, which decoders return for the bytes of an incomplete character."""


def generate(
    model: GPT, ids: Sequence[int], tokens: int, temperature: float = 1.0, top_k: int | None = None, seed: int = 0
) -> Iterator[int]:
    """Continue `ids` by `tokens` ids, each yielded when it is drawn; dropout is off, the model's mode is restored.

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
    return _continue(model, list(ids), tokens, lambda logits, draw: _choose(logits, temperature, top_k, draw), seed)


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
    model: GPT, ids: list[int], tokens: int, choose: Callable[[Tensor, torch.Generator], int], seed: int
) -> Iterator[int]:
    draw = torch.Generator().manual_seed(seed)
    for _ in range(tokens):
        ids.append(choose(_last_logits(model, ids), draw))
        yield ids[-1]


@torch.inference_mode()
def _last_logits(model: GPT, ids: Sequence[int]) -> Tensor:
    """Return the logits `[vocab_size]` of the token after `ids`, float64 on the CPU, without dropout."""
    window = torch.tensor([ids[-model.config.context_length :]], device=next(model.parameters()).device)
    was_training = model.training
    model.eval()
    try:
        logits = model.head.logits(model.hidden(window)[:, -1])[0].double().cpu()
    finally:
        model.train(was_training)
    if not logits.isfinite().all():
        raise UsageError(
            "the outputs of the model are not finite, so no token can be sampled; use an earlier checkpoint"
        )
    return logits


def _choose(logits: Tensor, temperature: float, top_k: int | None, draw: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    likeliest = logits.topk(min(top_k or logits.numel(), logits.numel()))
    chances = ((likeliest.values - likeliest.values[0]) / temperature).softmax(dim=-1)
    return int(likeliest.indices[torch.multinomial(chances, 1, generator=draw)])
