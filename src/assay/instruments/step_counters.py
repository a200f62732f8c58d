"""Counters of a recorded step: waits of the host, dropout masks, float8 products, and factors of the loss.

A dispatch mode sees the operators that make the host wait, with two exceptions. `tolist` calls no operator on a CPU, so
the seam that reads a step's figures reports its wait itself. And on a CPU every tensor is in host memory. There each
read counts, as it would on an accelerator, except reads of update counts, which torch's optimizers keep on the host.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch._ops import OpOverload

from assay.instruments.memory.storages import dtype_name, identity
from assay.parallel.loss_scale import GROWTH_INTERVAL
from assay.records.trace import Float8Product, Masks, Phase, Scaling
from assay.step.compiled import CompiledCall
from assay.step.program import LossScale, Step


class Synchronizations:
    """Counts the synchronizations of one step."""

    def __init__(self, step: Step) -> None:
        self.counts: Counter[str] = Counter()
        self._step = step
        self._counted = False
        self._counts: set[int] = set()
        self._states = 0

    @contextmanager
    def waiting_for(self, what: str) -> Iterator[None]:
        """Context in which the host waits; it counts once under `what`, whatever operators run inside."""
        self.counts[what] += 1
        self._counted = True
        try:
            yield
        finally:
            self._counted = False

    def note(self, phase: str, tensors: Iterable[torch.Tensor]) -> None:
        """Count an operator that waits; `tensors` are its arguments and results."""
        if not self._counted and not self._on_the_host(list(tensors)):
            self.counts[phase] += 1

    def _on_the_host(self, tensors: list[torch.Tensor]) -> bool:
        """True if the tensors would be in host memory with an accelerator, too."""
        if any(one.device.type != "cpu" for one in tensors):
            return False
        if self._step.program.device.type != "cpu":
            return True
        return all(identity(one.untyped_storage()) in self._update_counts() for one in tensors)

    def _update_counts(self) -> set[int]:
        """Storages of the optimizer's counts of updates; they are looked up again when a parameter gets a state."""
        state = self._step.optimizer.state
        if len(state) != self._states:
            kept = (entry.get("step") for entry in state.values() if isinstance(entry, dict))
            self._counts = {identity(one.untyped_storage()) for one in kept if isinstance(one, torch.Tensor)}
            self._states = len(state)
        return self._counts


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


_PRODUCT = torch.ops.aten._scaled_mm


class Float8Products:
    """Counts the float8 products of one step."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Phase, tuple[str, str]]] = Counter()
        self._full: Counter[tuple[Phase, tuple[str, str]]] = Counter()
        self._unread = False

    def note(self, call: CompiledCall, phase: Phase, *, readable: bool) -> None:
        """Count one operator if it is a float8 product; `readable`: the values of its arguments can be read."""
        if call.operator.overloadpacket is not _PRODUCT:
            return
        left, right = call.args[:2]
        key = phase, (dtype_name(left.dtype), dtype_name(right.dtype))
        self._counts[key] += 1
        if readable:
            self._full[key] += _at_full_scale(left) and _at_full_scale(right)
        else:
            self._unread = True

    def products(self) -> tuple[Float8Product, ...]:
        """Products by phase and formats, in the order of first execution."""
        return tuple(
            Float8Product(
                phase=phase,
                formats=formats,
                count=count,
                full_scale=None if self._unread else self._full[phase, formats],
            )
            for (phase, formats), count in self._counts.items()
        )


def _at_full_scale(factor: torch.Tensor) -> bool:
    """True if the largest element is the largest number of the format, or if all elements are zero."""
    largest = float(factor.float().abs().max())
    return largest in (0.0, torch.finfo(factor.dtype).max)


_Pair = tuple[torch.Tensor, torch.Tensor]


class ScaledLosses:
    """Losses of one step before and after scaling; their values are read after the step."""

    def __init__(self, scale: LossScale) -> None:
        self._scale, self._pairs, self._value = scale, list[_Pair](), scale.value

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Context that records each loss passed to the scale, and the scaled loss that it returns."""
        inner, self._value = self._scale.scale, self._scale.value

        def scale(loss: torch.Tensor) -> torch.Tensor:
            scaled = inner(loss)
            self._pairs.append((loss.detach(), scaled.detach()))
            return scaled

        self._scale.scale = scale  # type: ignore[method-assign]
        try:
            yield
        finally:
            del self._scale.scale

    def scaling(self, index: int, skipped: int | None) -> Scaling:
        """Summarize step `index`, before which `skipped` updates were skipped; None: unknown."""
        factors = {float(scaled / loss) for loss, scaled in self._pairs if float(loss) != 0}
        start = type(self._scale)().value
        due = None if skipped is None else (start / 2**skipped, start / 2**skipped * 2 ** (index // GROWTH_INTERVAL))
        return Scaling(value=self._value, losses=len(self._pairs), factors=tuple(sorted(factors)), due=due)
