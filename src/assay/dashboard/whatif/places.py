"""Places of a question: their machines, and whether a step fits there.

This machine has the rates that its home knows, and an absent device has those of its datasheet. Nothing is measured for
an answer. This machine is looked at once, and again when its file of rates has changed.

A fit is the need of a step against the memory, or the sentence that refuses the stack. One ledger serves all absent
devices, because a ledger depends on the kind of a device only. Its working storage is that of a device of unknown
capability, so no need is too small. The high end is what `assay capacity --device` counts.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Self

from assay.config.home import Home
from assay.cost.simulation.reserved import Interval
from assay.dashboard.whatif.question import ABSENT, HERE, WhatIfQuestion
from assay.errors import UsageError
from assay.estimator import Estimate
from assay.estimator.device_memory import OBJECTS, STARTED, device_memory
from assay.estimator.memory_fit import fit_within
from assay.hardware import Machine
from assay.hardware.devices import DEVICES, absent_machine
from assay.hardware.rates import known_machine, rates_file, step_times_file, user_rates_file
from assay.optimizations import check
from assay.report import predictions
from assay.report.kit.blocks import Table
from assay.units import format_bytes

Need = tuple[Interval | None, str]
"""Bytes in use, least and most, or None and the reason why they are not predicted."""


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


@dataclass(frozen=True)
class WhatIfFit:
    """A device and the need of a step on it."""

    device: str
    memory_bytes: int
    need: Interval | None
    """Bytes in use, least and most; None if they are not predicted."""
    why_not: str = ""
    """Why the stack cannot run there, or why the need is not predicted."""

    @property
    def verdict(self) -> str:
        """One word on whether it fits, or the reason why that is not known."""
        return self.why_not if self.need is None else fit_within(self.need, self.memory_bytes).verdict


def place_of(question: WhatIfQuestion, found: Estimate) -> tuple[str, int]:
    """Return the name of the device that was asked for, and the bytes of its memory."""
    if question.device != HERE:
        return DEVICES[question.device].name, DEVICES[question.device].memory_bytes
    return _this_place(found)


def fit_at(question: WhatIfQuestion, found: Estimate) -> WhatIfFit:
    """Return the need on the device that was asked for."""
    return fit_here(found) if question.device == HERE else WhatIfFit(*place_of(question, found), *need_on_gpu(found))


def fit_here(found: Estimate) -> WhatIfFit:
    """Return the need on this machine: of its process on a CPU, of the device on a GPU."""
    place = _this_place(found)
    if found.machine.device(found.run.device) == "cuda":
        return WhatIfFit(*place, *need_on_gpu(found))
    tensors = found.timeline.peak.nbytes + OBJECTS
    return WhatIfFit(*place, Interval(tensors + STARTED.low, found.most_bytes + OBJECTS + STARTED.high))


def fits(found: Estimate, need: Need) -> Iterator[WhatIfFit]:
    """Yield every absent device, by its memory, for a step on one of them and its need there."""
    for name in sorted(ABSENT, key=lambda one: DEVICES[one].memory_bytes):
        machine, sheet = absent(name), DEVICES[name]
        try:
            check(found.run, machine)
        except UsageError as reason:
            yield WhatIfFit(sheet.name, sheet.memory_bytes, None, str(reason))
            continue
        yield WhatIfFit(sheet.name, sheet.memory_bytes, *need)


def fit_words(one: WhatIfFit) -> str:
    """Return a fit as words: the verdict, and the need against the memory."""
    if one.need is None:
        return one.verdict
    return f"{one.verdict}: {_amounts(one.need)} of {format_bytes(one.memory_bytes)}"


def fit_sentence(one: WhatIfFit, place: str) -> str:
    """Return a fit as a sentence without its stop, on a `place` such as ``one H100``."""
    if one.need is None:
        return f"Whether it fits {place} is not known: {one.why_not}"
    return predictions.fit_sentence(one.need, one.memory_bytes, place)


def fits_table(rows: Iterable[WhatIfFit]) -> Table:
    """Return the devices as a table."""
    columns = ("device", "memory", "need", "share", "does it fit?")
    return Table.of(columns, (_row(one) for one in rows), columns[1:4])


def _row(one: WhatIfFit) -> tuple[str, ...]:
    if one.need is None:
        return (one.device, format_bytes(one.memory_bytes), "–", "–", one.verdict)
    share = f"{one.need.high / one.memory_bytes:.0%}".replace("%", " %")
    return (one.device, format_bytes(one.memory_bytes), _amounts(one.need), share, one.verdict)


def _amounts(need: Interval) -> str:
    return " to ".join(dict.fromkeys(map(format_bytes, (need.low, need.high))))


def _this_place(found: Estimate) -> tuple[str, int]:
    machine = found.machine
    if machine.device(found.run.device) == "cuda":
        gpu = machine.accelerators[0]
        return f"this machine, {gpu.name}", gpu.memory_bytes
    return f"this machine, {machine.processor}", machine.memory_bytes


def need_on_gpu(found: Estimate) -> Need:
    """Return the bytes in use on a GPU, or why they are not predicted."""
    memory = device_memory(found)
    total = None if memory is None else memory.total
    return total, "" if total else "captured graphs have a pool of their own, which is not predicted"
