"""Warnings of shapes that hardware dislikes: sides of matrix products that are not whole tiles.

Tensor cores compute tiles of 8 or 16 elements a side, and kernels blocks of 64 to 256. A side that is no multiple of 8
is padded or takes a slower kernel. One that is no multiple of 64 leaves a part of its last block idle. The source is
NVIDIA's Deep Learning Performance Guide, on matrix multiplication. nanoGPT rounds GPT-2's 50,257 tokens to
50,304 for this reason. Vector units of CPUs have 8 or 16 lanes.
"""

from collections.abc import Iterator

from assay.config.model import ModelConfig

TILE, BLOCK = 8, 64


def warnings(model: ModelConfig, on_gpu: bool) -> Iterator[str]:
    """Yield a sentence for each side of a product that is not a whole number of tiles, or on a GPU of blocks."""
    sides = {"model.n_embd": model.n_embd, "the width of a head": model.head_dim, "the MLP's width": model.hidden}
    for name, width in sides.items():
        multiple = BLOCK if on_gpu and width > BLOCK else TILE
        if width % multiple:
            yield (
                f"{name} is {width}, no multiple of {multiple}, so tiles of products are partly idle; "
                f"{_up(width, multiple)} takes hardly longer"
            )
    if model.vocabulary % BLOCK:
        more = _up(model.vocabulary, BLOCK)
        yield (
            f"the vocabulary has {model.vocabulary:,} rows, no multiple of {BLOCK}; with model.vocab_size={more} the "
            "logits are whole blocks"
        )


def _up(width: int, multiple: int) -> int:
    return -(-width // multiple) * multiple
