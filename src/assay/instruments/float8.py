"""Count matrix products of float8 factors: their formats, and whether their scales use the formats' whole range."""

from collections import Counter

import torch

from assay.instruments.memory.storages import dtype_name
from assay.records.trace import Float8Product, Phase
from assay.step.compiled import CompiledCall

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
