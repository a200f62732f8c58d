"""Records by what a loss was really multiplied before it was differentiated."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from assay.parallel.loss_scale import GROWTH_INTERVAL
from assay.step.program import LossScale
from assay.step.scaling import Scaling

_Pair = tuple[torch.Tensor, torch.Tensor]


class ScaledLosses:
    """The losses of one step before and after the scale; they are read once the step is done."""

    def __init__(self, scale: LossScale) -> None:
        self._scale, self._pairs, self._value = scale, list[_Pair](), scale.value

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Learn from the scale what it is given and what it returns."""
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
        """The account of step `index`, before which so many updates were skipped; None: unknown."""
        factors = {float(scaled / loss) for loss, scaled in self._pairs if float(loss) != 0}
        start = type(self._scale)().value
        due = None if skipped is None else (start / 2**skipped, start / 2**skipped * 2 ** (index // GROWTH_INTERVAL))
        return Scaling(value=self._value, losses=len(self._pairs), factors=tuple(sorted(factors)), due=due)
