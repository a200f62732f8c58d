"""What is kept of a comparison: every cell with its result, and how the measuring was done.

The record is all that the analysis, the table and the page read: from it they can be made again, on another day or
another machine, even when the run folders are gone.
"""

import secrets
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from pydantic import ConfigDict, Field, ValidationError

from assay.config.base import Frozen
from assay.config.home import Home
from assay.config.run import Run
from assay.data.atomic import write_file
from assay.errors import UsageError
from assay.runs.record import RunResult
from assay.studies.design import BASELINE, Cell


class Curve(Frozen):
    """How the loss went: one value a step, and the evaluations."""

    train_loss: tuple[float | None, ...] = ()
    """By step, from step 0; None where it was not finite."""
    evaluations: tuple[tuple[int, float | None], ...] = ()
    """(steps completed, validation loss)."""


class CellResult(Frozen):
    """A cell and what became of it."""

    cell: Cell
    wave: int
    """Cells of one wave were alive together and took turns; figures are paired within a wave only."""
    result: RunResult
    curve: Curve = Field(default_factory=Curve)


class Round(Frozen):
    """One timed block of every cell that was alive, in the order in which they ran."""

    seed: int
    wave: int
    number: int
    order: tuple[str, ...]
    disturbed: tuple[str, ...] = ()
    """Cells whose block others disturbed; the round then does not count, where enough others do."""


class Protocol(Frozen):
    """How the measuring was done."""

    blocks: int
    """Timed blocks of each cell."""
    processes: int = 1
    """Of each row at each seed."""
    resident: int
    """How many cells were alive at a time at most."""
    needed_bytes: int | None = None
    """Predicted for all cells of one seed together; None where a prediction was missing."""
    available_bytes: int
    """Free on the machine when the comparison began."""
    notes: tuple[str, ...] = ()
    """Sentences on what had to be done otherwise than planned."""


class Ending(StrEnum):
    """How the comparison as a whole ended."""

    COMPLETE = "complete"
    INTERRUPTED = "interrupted"


class ComparisonRecord(Frozen):
    """A comparison, whole."""

    model_config = ConfigDict(strict=False)

    id: str
    created: str
    """UTC, ISO 8601."""
    title: str
    """The preset or file, or `configuration` where the run was given as an object."""
    base: Run
    seeds: tuple[int, ...]
    treatments: tuple[str, ...]
    """In the order of listing; the baseline is not among them."""
    ending: Ending
    protocol: Protocol
    cells: tuple[CellResult, ...]
    rounds: tuple[Round, ...]
    nudged: tuple[CellResult, ...] = ()
    """By seed: the baseline with nudged weights (`drift`), of which only the training losses mean anything."""

    def of(self, treatment: str) -> tuple[CellResult, ...]:
        """The cells of one treatment; further runs of the baseline, made only to be paired with, are left out."""
        return tuple(one for one in self.cells if one.cell.treatment == treatment and one.cell.replicate <= 1)

    @property
    def planned(self) -> int:
        """Processes of each row."""
        return len(self.seeds) * self.protocol.processes

    @property
    def references(self) -> tuple[CellResult, ...]:
        """Every run of the baseline that a treatment can be paired with, the first ones first."""
        return tuple(one for one in self.cells if one.cell.treatment == BASELINE)


def new_id() -> str:
    """A name for a comparison: when it began, and four digits that tell two of the same second apart."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def folder(record_id: str, home: Home) -> Path:
    """Where a comparison's record and page are kept."""
    return home.reports / record_id


def save(record: ComparisonRecord, home: Home) -> Path:
    """Write `comparison.json` whole or not at all; returns its path. Raises `StorageError`."""
    path = folder(record.id, home) / "comparison.json"
    write_file(path, record.model_dump_json(indent=1).encode())
    return path


def read(record_id: str, home: Home) -> ComparisonRecord:
    """The record of a comparison made earlier. Raises `UsageError` when there is none or it cannot be read."""
    path = folder(record_id, home) / "comparison.json"
    try:
        return ComparisonRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"there is no comparison {record_id!r} under {home.reports}") from None
    except (OSError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise UsageError(f"{path} cannot be read ({first}); delete its folder and compare again") from error
