"""A short text from a trained model: the beginning of what `assay sample RUN` writes from the same checkpoint.

It is written when all that is measured and proven is recorded, from the weights on disk. The draws come from a
generator of their own, so nothing else of the run depends on them.
"""

from collections.abc import Iterable

import numpy as np

from assay.config.sampling import PROMPT, SEED, TEMPERATURE, TOKENS
from assay.data import Tokenizer
from assay.model import GPT
from assay.model.generate import generate, pieces
from assay.records.run import SampledText

LONGEST = 200
"""Most characters of the text."""


def sample(model: GPT, tokenizer: Tokenizer) -> SampledText:
    """Continue a line break by at most 200 characters, on the CPU.

    Raises `UsageError` if the model's outputs are not finite.
    """
    given = tokenizer.encode(PROMPT).tolist()
    drawn = generate(model, given, TOKENS, TEMPERATURE, seed=SEED)
    text = pieces(lambda ids: tokenizer.decode(np.asarray(ids, dtype=np.int64)), given, drawn)
    return SampledText(prompt=PROMPT, text=_beginning(text), temperature=TEMPERATURE, seed=SEED)


def _beginning(text: Iterable[str]) -> str:
    """Take pieces until there are enough characters; later ones are never drawn."""
    found = ""
    for piece in text:
        found += piece
        if len(found) >= LONGEST:
            break
    return found[:LONGEST]
