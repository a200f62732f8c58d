"""The largest whole number in a command, such as a batch size, with which a script fits an absent GPU.

The command has `{}` in the place of the number. Each number is one run of the script. Memory grows nearly in proportion
to a batch. A line through the two largest numbers that fit meets the device's memory at the next one. Every second
number halves what is left instead, because memory may also grow in steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from assay.absent.script_answer import AbsentAnswer
from assay.errors import UsageError
from assay.estimator.memory_fit import MemoryFit
from assay.records.status import Exit, Status

MARK = "{}"
"""Text that stands for the number in a command."""
STEPS = 2
"""Steps after which a run of the search ends, unless the user states others. The second has the optimizer's state."""
MOST = 2**20
"""Largest number that is tried."""
_GROWTH = 8
"""Largest factor between two numbers while none has failed: inputs are made in the host's memory."""


class TrialAnswer(Protocol):
    """An answer on one number: of a script that ran, or of a step that was traced."""

    @property
    def fit(self) -> MemoryFit:
        """Whether it fits the device."""
        ...

    @property
    def in_use_bytes(self) -> tuple[int, int] | None:
        """Least and most memory in use on the device."""
        ...

    @property
    def visible_bytes(self) -> int:
        """Memory of the device."""
        ...


Told = TypeVar("Told", bound=TrialAnswer)


class Probe(NamedTuple, Generic[Told]):
    """One number that was tried."""

    number: int
    answer: Told

    @property
    def fits(self) -> bool:
        """True if it fits with any context that was measured, apart from workspaces that are not known."""
        return self.answer.fit in (MemoryFit.YES, MemoryFit.CONDITIONAL)

    @property
    def decides(self) -> bool:
        """True if the answer tells whether it fits."""
        return self.fits or self.answer.fit in (MemoryFit.BARELY, MemoryFit.NO)

    @property
    def in_use_bytes(self) -> int:
        """Most memory in use on the device."""
        found = self.answer.in_use_bytes
        return 0 if found is None else found[1]


@dataclass(frozen=True)
class Search(Generic[Told]):
    """Result of a search: what was tried, in its order."""

    probes: tuple[Probe[Told], ...]

    @property
    def best(self) -> Probe[Told] | None:
        """The largest number that fits; None if even 1 does not, or if an answer could not tell."""
        fitting = [one for one in self.probes if one.fits]
        return max(fitting, default=None, key=lambda one: one.number) if self.undecided is None else None

    @property
    def undecided(self) -> Probe[Told] | None:
        """The number whose answer could not tell whether it fits, which ended the search."""
        return next((one for one in self.probes if not one.decides), None)


class LargestFit(Search[AbsentAnswer]):
    """Result of a search over runs of a script."""

    @property
    def exit_code(self) -> Exit:
        """Exit code of the command: whether a number is known, none fits, or a run could not tell."""
        if self.undecided is not None and self.undecided.answer.status is Status.INTERRUPTED:
            return Exit.INTERRUPTED
        if self.best:
            return Exit.DONE
        return Exit.UNMET if self.undecided is None else Exit.NO_RESULT

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
    return LargestFit(search_largest(ask))


def search_largest(ask: Callable[[int], Told], known: Sequence[Probe[Told]] = ()) -> tuple[Probe[Told], ...]:
    """Try numbers until the largest that fits is known, or an answer cannot tell. `known` ones are not tried again."""
    probes = list(known)
    number = _next(probes)
    while number is not None:
        probes.append(Probe(number, ask(number)))
        number = _next(probes)
    return tuple(probes)


def _next(probes: Sequence[Probe[Any]]) -> int | None:
    """The number to try next; None if the largest is known, or if an answer could not tell."""
    if not all(one.decides for one in probes):
        return None
    fitting = sorted((one for one in probes if one.fits), key=lambda one: one.number)
    if not fitting:
        return None if any(one.number == 1 for one in probes) else 1
    low = fitting[-1].number
    high = min((one.number for one in probes if not one.fits), default=min(_GROWTH * low, MOST) + 1)
    if high - low <= 1:
        return None
    guess = (low + high) // 2 if len(probes) % 2 == 0 else _where_memory_ends(fitting, high)
    return min(max(guess, low + 1), high - 1)


def _where_memory_ends(fitting: Sequence[Probe[Any]], high: int) -> int:
    """The number at which a line through the two largest that fit meets the device's memory."""
    if len(fitting) < 2:
        return high
    before, last = fitting[-2:]
    slope = (last.in_use_bytes - before.in_use_bytes) / (last.number - before.number)
    left = last.answer.visible_bytes - last.in_use_bytes
    return high if slope <= 0 else last.number + int(left / slope)
