"""Numbers that the code of a step holds while the tape is played: its loss, the gradient of that, and norms.

`training.gradients` divides the summed loss of a micro-batch by the tokens of the step. Its frame holds the loss and
the quotient during backward, and torch's `backward` holds the quotient's gradient, which is 1. The loss of the first
micro-batch, or the sum of several, stays until the step ends. So do the norms of the first and the last block's output
(`training.probes`). All of them are float32 scalars, 4 bytes each.
"""

from collections.abc import Iterable

from assay.cost.simulation.allocator import Category, Ledger, Storage

FLOAT32 = 4
"""Bytes of one number."""


class StepNumbers:
    """Numbers of one step."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._in_backward: list[Storage] = []
        self._summed = False

    def take(self, count: int = 1) -> list[Storage]:
        """Hold some numbers, until they are dropped or the step ends."""
        return [self._ledger.take(FLOAT32, Category.NUMBER) for _ in range(count)]

    def begin_backward(self) -> None:
        """Hold the loss, its quotient and the quotient's gradient; the tape has released its own loss."""
        self._in_backward = self.take(3)

    def end_backward(self) -> None:
        """Keep the first loss as the sum of all, and add every later one to it."""
        first, *others = self._in_backward
        self._drop([first, *others] if self._summed else others)
        self._summed = True

    def _drop(self, numbers: Iterable[Storage]) -> None:
        for one in numbers:
            self._ledger.drop(one)
