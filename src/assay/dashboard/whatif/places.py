"""Machines of a question: this one with the rates that its home has, or an absent device with those of its datasheet.

Nothing is measured for an answer. This machine is looked at once, and again when its file of rates has changed.
"""

from functools import cache, lru_cache
from pathlib import Path
from typing import Self

from assay.config.home import Home
from assay.dashboard.whatif.question import HERE, WhatIfQuestion
from assay.hardware import Machine
from assay.hardware.devices import absent_machine
from assay.hardware.rates import known_machine, rates_file, step_times_file, user_rates_file


class KnownMachines:
    """Machines of an answer, compared by identity: they are kept while nothing about them changes."""

    def __init__(self, asked: Machine, here: Machine) -> None:
        self.asked, self.here = asked, here

    @classmethod
    def of(cls, question: WhatIfQuestion, home: Home) -> Self:
        """Return the machine on which a question's step should run, and this one."""
        here = this_machine(home)
        return cls(here if question.device == HERE else absent(question.device), here)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KnownMachines) and self.asked is other.asked and self.here is other.here

    def __hash__(self) -> int:
        return hash((id(self.asked), id(self.here)))


def this_machine(home: Home) -> Machine:
    """Return this machine with what its home knows of its rates."""
    return _here(home.root, known_since(home))


def known_since(home: Home) -> tuple[int, ...]:
    """Return the times at which the files of rates and of step times last changed."""
    return tuple(map(_changed, filter(None, (user_rates_file(), rates_file(home), step_times_file(home)))))


@cache
def absent(name: str) -> Machine:
    """Return an absent machine with one device, whose rates are the peaks of its datasheet."""
    return absent_machine(name)


@lru_cache(maxsize=4)
def _here(root: Path, changed: tuple[int, ...]) -> Machine:
    return known_machine(Home(root))


def _changed(path: Path) -> int:
    """Time of the last change of a file in nanoseconds; 0 if there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
