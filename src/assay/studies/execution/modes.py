"""The finished cells that a resumed study keeps.

A finished cell is known by its configuration, corpus, package, torch and machine. The plan fixes the configuration. If
any of the others has changed, figures could not be compared, so the cell runs again. The machine is its processor, the
instructions that kernels use, its cores, and the accelerator of a cell that ran on one.

A failure may be a fault of the machine, so `retry-failed` runs it again. Running out of memory and diverging are
results, and never run again except with `force`.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum

from assay.config.run import DataConfig
from assay.hardware import Machine
from assay.hardware.detect import installed_version, torch_version
from assay.records.run import Environment
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


def cells_to_keep(cells: Iterable[CellResult], mode: Mode) -> list[CellResult]:
    """Return the finished cells that a mode does not run again."""
    if mode is Mode.FORCE:
        return []
    again = _FAULTS if mode is Mode.RETRY_FAILED else frozenset()
    return [one for one in cells if one.result.status not in again]


def elsewhere(
    cells: Iterable[CellResult], machine: Machine, digest: Callable[[DataConfig], str]
) -> dict[str, list[CellResult]]:
    """Return the cells whose figures are not of this machine, these packages and this text, by what differs.

    `digest` returns the digest of the corpus that a configuration has now. It is asked for cells that recorded theirs.
    """
    found: dict[str, list[CellResult]] = {}
    for one in cells:
        then = one.result.provenance.environment
        if then is None:
            continue
        corpus = None if then.corpus_digest is None else digest(one.cell.run.data)
        if differs := _differs(then, machine, corpus):
            found.setdefault(differs, []).append(one)
    return found


def _differs(then: Environment, machine: Machine, corpus: str | None) -> str:
    """Return the names of what has changed. What a record or this machine does not know is not compared."""
    accelerators = ", ".join(dict.fromkeys(one.name for one in machine.accelerators))
    pairs = {
        "processor": (then.processor, machine.processor),
        "instruction set": (then.instruction_set, machine.instruction_set or None),
        "accelerator": (then.accelerator, accelerators),
        "cores": (then.cores, len(then.pinned) or machine.cores),
        "assay": (then.assay, installed_version()),
        "torch": (then.torch, torch_version()),
        "corpus": (then.corpus_digest, corpus),
    }
    return ", ".join(name for name, (old, new) in pairs.items() if old is not None and new is not None and old != new)
