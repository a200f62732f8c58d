"""Count dropout masks as they are drawn, and match masks that recomputation draws to the forward's by a digest."""

from collections import Counter
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch._ops import OpOverload

from assay.records.trace import Masks, Phase

_LEAST_ELEMENTS = 256
"""Two masks of this many elements agree by chance less than once in 10¹⁰ steps at any usual dropout rate."""

_EIGHT = 8
"""Elements of 16 bits that a thread of a GPU's dropout draws at once."""

DRAWN_ON_CPU = torch.ops.aten.bernoulli_.float
DROPOUT_OF_GPU = torch.ops.aten.native_dropout.default


class MaskCounts:
    """Counts the masks of one step."""

    def __init__(self) -> None:
        self._drawn: Counter[int] = Counter()
        self._again: list[int] = []
        self._large: list[int] = []
        self._elements = self._zeros = self._repeated = 0

    def note(self, operator: OpOverload, args: tuple[Any, ...], result: Any, phase: Phase) -> None:
        """Count the mask that an operator drew in forward or recompute, if it drew one."""
        mask = drawn_mask(operator, args, result)
        if mask is None or phase not in ("forward", "recompute"):
            return
        kept = mask.ne(0).cpu().numpy()
        digest = crc32(np.packbits(kept).data)
        if phase == "recompute":
            self._again.append(digest)
            return
        if kept.size >= _LEAST_ELEMENTS:
            self._large.append(digest)
        self._repeated += digest in self._drawn and kept.size >= _LEAST_ELEMENTS
        self._drawn[digest] += 1
        self._elements += kept.size
        self._zeros += kept.size - int(kept.sum())

    def masks(self) -> Masks:
        """Counts so far. A recomputed mask is unequal if no forward mask is left with its digest."""
        left, unequal = Counter(self._drawn), 0
        for digest in self._again:
            unequal += left[digest] == 0
            left[digest] -= left[digest] > 0
        return Masks(
            drawn=self._drawn.total(),
            elements=self._elements,
            zeros=self._zeros,
            repeated=self._repeated,
            again=len(self._again),
            unequal=unequal,
            digests=tuple(self._large),
        )


def drawn_mask(operator: OpOverload, args: tuple[Any, ...], result: Any) -> torch.Tensor | None:
    """Return the mask that an unfused dropout drew: `bernoulli_` fills one on a CPU, a GPU's dropout returns one."""
    if operator is DRAWN_ON_CPU:
        return result if isinstance(result, torch.Tensor) else None
    if operator is DROPOUT_OF_GPU and args[2]:
        return result[1] if isinstance(result[1], torch.Tensor) else None
    return None


def half_again(before: torch.Tensor, mask: torch.Tensor) -> bool:
    """True if elements 0 to 3 of each eight of a mask are elements 4 to 7 of the one before.

    Torch draws 16-bit masks of up to 4 · 256 · 8 elements a multiprocessor so. A call uses eight numbers a thread
    and moves the generator on by four (Dropout.cu). An H200 showed it up to 1,081,344 elements.
    """
    if before.numel() != mask.numel() or mask.numel() % _EIGHT or mask.numel() < 32 * _EIGHT:
        return False
    return torch.equal(before.reshape(-1, _EIGHT)[:, 4:], mask.reshape(-1, _EIGHT)[:, :4])


def largest_half_repeated(device: torch.device, most: int = 2**22) -> int:
    """Return how many elements the largest 16-bit mask has of which dropout repeats half in the next one; 0 if none.

    Masks of 4,096 elements, twice as many, and so on are drawn twice, up to `most` elements.
    """
    largest, size = 0, 2**12
    while size <= most:
        ones = torch.ones(size, device=device, dtype=torch.bfloat16)
        before, after = (torch.nn.functional.dropout(ones, 0.5).ne(0) for _ in range(2))
        largest = size if half_again(before, after) else largest
        size *= 2
    return largest
