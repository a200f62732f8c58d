"""Processor time that the processes of a cell use while other cells are timed.

A cell whose processes work during the turns of others slows them, and wins. So the coordinator reads the processor time
of every waiting cell's processes at both edges of a turn. A process belongs to a cell if it is in the cell's session or
group, or if its parent belongs. Once it was seen there, it still belongs after its parent has ended. A process that
left all of that before it was seen is known by a variable of its environment. The time of a process that ended in
between is in the account of the one that waited for it.

The kernel counts in hundredths of a second. A process that leaves its session, its parent and its environment is
another program here. It still disturbs the rounds of others (`instruments.rates.machine_load`).
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import psutil

RUN_VARIABLE = "ASSAY_RUN_FOLDER"
"""Variable in the environment of a run's processes: its folder."""

_CLOCK_SECONDS = 1.0
"""Coarseness of the times when processes began."""

Known = tuple[int, float]
"""Number of a process, and the time when it began: numbers are used again."""


class Account(NamedTuple):
    """Processor seconds of one process so far."""

    own: float
    reaped: float
    """Processor seconds of its children that have ended, and for which it has waited."""


Accounts = Mapping[Known, Account]


class Trees:
    """The processes of some cells, which are known by the number of the process that leads each of them."""

    def __init__(self) -> None:
        self._seen: dict[Known, int] = {}
        """Leader of each process that belonged to a cell at an earlier reading."""
        self._began = inf
        """Time when the first leader began that was ever read."""
        self._runs: dict[Known, str | None] = {}
        """Run that the environment of each process names; None if it names none."""

    def read(self, leaders: Mapping[str, int]) -> Mapping[str, Accounts]:
        """Return the accounts of the processes of each cell. Processes that cannot be read are left out."""
        names = {leader: name for name, leader in leaders.items()}
        found: dict[str, dict[Known, Account]] = {name: {} for name in leaders}
        self._began = min(self._began, _began(leaders.values()))
        running = _running_since(self._began)
        for number, (process, parent) in running.items():
            known = (number, process.create_time())
            leader = self._seen.get(known) or _leader_of(number, parent, running, names)
            leader = leader or self._by_environment(process, running, names)
            if leader in names:
                self._seen[known] = leader
                with suppress(psutil.Error):
                    found[names[leader]][known] = _account(process)
        return found

    def _by_environment(self, process: psutil.Process, running: "_Running", leaders: Mapping[int, str]) -> int | None:
        """Return the leader of the run that a process's environment names; None if it names no other's."""
        if (run := self._run_of(process)) is None:
            return None
        return next((one for one in leaders if one in running and self._run_of(running[one][0]) == run), None)

    def _run_of(self, process: psutil.Process) -> str | None:
        known = (process.pid, process.create_time())
        if known not in self._runs:
            self._runs[known] = None
            with suppress(psutil.Error, OSError):
                self._runs[known] = process.environ().get(RUN_VARIABLE)
        return self._runs[known]


def used_seconds(before: Accounts, after: Accounts) -> float:
    """Return the processor seconds between two readings. What ended processes had used before is not counted again."""
    own = sum(one.own - before.get(known, Account(0.0, 0.0)).own for known, one in after.items())
    reaped = sum(one.reaped - before.get(known, Account(0.0, 0.0)).reaped for known, one in after.items())
    gone = sum(sum(one) for known, one in before.items() if known not in after)
    return own + max(0.0, reaped - gone)


@dataclass
class Neighbours:
    """Accounts of one round: what each cell used outside of its own turn, and how long the turns of others took."""

    trees: Trees
    turn_seconds: dict[str, float] = field(default_factory=dict)
    outside_seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def during(self, turn: str, waiting: Mapping[str, int]) -> Iterator[None]:
        """Count what cells use in the block, which is the turn of another; `waiting` has the leader of each."""
        before, began = self.trees.read(waiting), time.monotonic()
        yield
        self.turn_seconds[turn] = time.monotonic() - began
        after = self.trees.read(waiting)
        for name in waiting:
            used = used_seconds(before[name], after[name])
            self.outside_seconds[name] = self.outside_seconds.get(name, 0.0) + used

    @property
    def used(self) -> float:
        """Processor seconds of all cells outside of their own turns so far."""
        return sum(self.outside_seconds.values())


_Running = Mapping[int, tuple[psutil.Process, int]]


def _began(leaders: Iterable[int]) -> float:
    """Return the time when the first of the leaders began; infinity if none lives."""
    found = inf
    for leader in leaders:
        with suppress(psutil.Error):
            found = min(found, psutil.Process(leader).create_time())
    return found


def _running_since(began: float) -> _Running:
    """Return every process that is not older than the leaders, with its parent's number: older ones are of no cell."""
    found = {}
    for process in psutil.process_iter() if began < inf else ():
        with suppress(psutil.Error):
            if process.create_time() >= began - _CLOCK_SECONDS:
                found[process.pid] = (process, process.ppid())
    return found


def _leader_of(number: int, parent: int, running: _Running, leaders: Mapping[int, str]) -> int | None:
    """Return the leader to whose session or group a process or one of its ancestors belongs; None without one."""
    passed = set()
    while number not in passed:
        passed.add(number)
        for leader in (number, *_session_and_group(number)):
            if leader in leaders:
                return leader
        if parent not in running:
            return None
        number, parent = parent, running[parent][1]
    return None


def _session_and_group(number: int) -> tuple[int, ...]:
    if not hasattr(os, "getsid"):
        return ()
    with suppress(OSError):
        return os.getsid(number), os.getpgid(number)
    return ()


def _account(process: psutil.Process) -> Account:
    times = process.cpu_times()
    reaped = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return Account(own=times.user + times.system, reaped=reaped)
