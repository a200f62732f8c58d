"""Record the factor by which each loss was multiplied before backward."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from assay.parallel.loss_scale import GROWTH_INTERVAL
from assay.records.trace import Scaling
from assay.step.program import LossScale

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
