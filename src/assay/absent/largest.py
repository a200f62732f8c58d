"""The largest whole number in a command, such as a batch size, with which a script fits an absent GPU.

The command has `{}` in the place of the number. Each number is one run of the script. Memory grows nearly in proportion
to a batch. A line through the two largest numbers that fit meets the device's memory at the next one. Every second
number halves what is left instead, because memory may also grow in steps.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from assay.absent.answer import AbsentAnswer, Fit
from assay.errors import UsageError
from assay.records.status import Status

MARK = "{}"
"""Text that stands for the number in a command."""
STEPS = 2
"""Steps after which a run of the search ends, unless the user states others. The second has the optimizer's state."""
MOST = 2**20
"""Largest number that is tried."""
_GROWTH = 8
"""Largest factor between two numbers while none has failed: inputs are made in the host's memory."""


class Probe(NamedTuple):
    """One run of the script."""

    number: int
    answer: AbsentAnswer

    @property
    def fits(self) -> bool:
        """True if the script fits with any context that was measured, apart from workspaces that are not known."""
        return self.answer.fit in (Fit.YES, Fit.CONDITIONAL)

    @property
    def decides(self) -> bool:
        """True if the run tells whether the script fits."""
        return self.fits or self.answer.fit in (Fit.BARELY, Fit.NO)

    @property
    def in_use_bytes(self) -> int:
        """Most memory in use on the device."""
        found = self.answer.in_use_bytes
        return 0 if found is None else found[1]


class LargestFit(NamedTuple):
    """Result of a search: its runs in their order."""

    probes: tuple[Probe, ...]

    @property
    def best(self) -> Probe | None:
        """The run with the largest number that fits; None if even 1 does not, or if a run could not tell."""
        fitting = [one for one in self.probes if one.fits]
        return max(fitting, default=None, key=lambda one: one.number) if self.undecided is None else None

    @property
    def undecided(self) -> Probe | None:
        """The run that could not tell whether the script fits, which ended the search."""
        return next((one for one in self.probes if not one.decides), None)

    @property
    def exit_code(self) -> int:
        """Exit code of the command: 0 if a number is known, 3 if not, and 130 after an interrupt."""
        interrupted = self.undecided is not None and self.undecided.answer.status is Status.INTERRUPTED
        return Status.INTERRUPTED.exit_code if interrupted else 0 if self.best else Status.OUT_OF_MEMORY.exit_code

    def to_dict(self) -> dict[str, object]:
        """Return the result as plain values, with the answer of the best run, or of the one that could not tell."""
        shown = self.best or self.undecided or self.probes[-1]
        numbers = [{"number": one.number, "fits": one.answer.fit.value} for one in self.probes]
        return {"largest": self.best and self.best.number, "probes": numbers, **shown.answer.to_dict()}


def with_number(command: Sequence[str], number: int) -> list[str]:
    """Return the command with a number in the place of each `{}`. Raises `UsageError` if it has none."""
    if not any(MARK in one for one in command):
        raise UsageError("--largest finds a number; write {} in its place, as in: -- python train.py --batch_size {}")
    return [one.replace(MARK, str(number)) for one in command]


def largest_fit(ask: Callable[[int], AbsentAnswer]) -> LargestFit:
    """Search the largest number with which `ask`, one run of the script, fits."""
    probes: list[Probe] = []
    number: int | None = 1
    while number is not None:
        probes.append(Probe(number, ask(number)))
        number = _next(probes) if probes[-1].decides else None
    return LargestFit(tuple(probes))


def _next(probes: Sequence[Probe]) -> int | None:
    """The number to try next; None if the largest is known."""
    fitting = sorted((one for one in probes if one.fits), key=lambda one: one.number)
    if not fitting:
        return None if probes[-1].number == 1 else 1
    low = fitting[-1].number
    high = min((one.number for one in probes if not one.fits), default=min(_GROWTH * low, MOST) + 1)
    if high - low <= 1:
        return None
    guess = (low + high) // 2 if len(probes) % 2 == 0 else _where_memory_ends(fitting, high)
    return min(max(guess, low + 1), high - 1)


def _where_memory_ends(fitting: Sequence[Probe], high: int) -> int:
    """The number at which a line through the two largest that fit meets the device's memory."""
    if len(fitting) < 2:
        return high
    before, last = fitting[-2:]
    slope = (last.in_use_bytes - before.in_use_bytes) / (last.number - before.number)
    left = last.answer.device.visible_bytes - last.in_use_bytes
    return high if slope <= 0 else last.number + int(left / slope)
