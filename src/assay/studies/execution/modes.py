"""The finished cells that a resumed study keeps.

A finished cell is known by its configuration, corpus, package, torch and machine. The plan fixes the configuration. If
any of the others has changed, figures could not be compared, so the cell runs again.

A failure may be a fault of the machine, so `retry-failed` runs it again. Running out of memory and diverging are
results, and never run again except with `force`.
"""

from collections.abc import Iterable
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version

from assay.hardware import Machine
from assay.records.environment import Environment
from assay.records.status import Status
from assay.records.study import CellResult


class Mode(StrEnum):
    """Cells that `assay study resume` runs."""

    MISSING = "missing"
    """Cells that have no result."""
    RETRY_FAILED = "retry-failed"
    """Also cells that failed, were killed or timed out."""
    FORCE = "force"
    """All cells."""
    READ_ONLY = "read-only"
    """None: the answer is made from the cells that have ended."""


_FAULTS = frozenset({Status.FAILED, Status.KILLED, Status.TIMED_OUT, Status.UNAVAILABLE, Status.DAMAGED})


def kept(cells: Iterable[CellResult], mode: Mode) -> list[CellResult]:
    """Return the finished cells that a mode does not run again."""
    if mode is Mode.FORCE:
        return []
    again = _FAULTS if mode is Mode.RETRY_FAILED else frozenset()
    return [one for one in cells if one.result.status not in again]


def elsewhere(cells: Iterable[CellResult], machine: Machine) -> dict[str, list[CellResult]]:
    """Return the cells whose figures are not of this machine and these packages, by what differs."""
    found: dict[str, list[CellResult]] = {}
    for one in cells:
        here = one.result.environment
        differs = _differs(here, machine) if here is not None else ""
        if differs:
            found.setdefault(differs, []).append(one)
    return found


def _differs(then: Environment, machine: Machine) -> str:
    now = {
        "processor": machine.processor,
        "cores": len(then.pinned) or machine.cores,
        "assay": _version("assay"),
        "torch": _version("torch"),
    }
    return ", ".join(name for name, value in now.items() if value is not None and getattr(then, name) != value)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
