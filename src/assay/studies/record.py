"""The record of a comparison: every cell with its result, and the protocol of the measurement.

The analysis, the table and the page read only this record. So they can be made anew on another day or machine, even if
the run folders are gone.
"""

import secrets
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from pydantic import ConfigDict, Field, ValidationError

from assay.config.base import Frozen
from assay.config.home import Home
from assay.config.run import ResolvedRun
from assay.errors import UsageError
from assay.files import write_file
from assay.records.run import RunResult
from assay.studies.design import BASELINE, Cell


class Curve(Frozen):
    """The loss during a run: one value per step, and the evaluations."""

    train_loss: tuple[float | None, ...] = ()
    """Training loss of each step, from step 0; None if it was not finite."""
    evaluations: tuple[tuple[int, float | None], ...] = ()
    """(steps completed, validation loss)."""


class CellResult(Frozen):
    """A cell and its result."""

    cell: Cell
    wave: int
    """Index of the wave. Its cells were alive together and took turns; figures are paired within a wave only."""
    result: RunResult
    curve: Curve = Field(default_factory=Curve)


class Round(Frozen):
    """One timed block of every living cell, in the order of execution."""

    seed: int
    wave: int
    number: int
    order: tuple[str, ...]
    disturbed: tuple[str, ...] = ()
    """Cells whose block was disturbed. Such a round does not count if there are enough undisturbed ones."""


class Protocol(Frozen):
    """Protocol of the measurement."""

    blocks: int
    """Timed blocks of each cell."""
    processes: int = 1
    """Processes of each row at each seed."""
    resident: int
    """Largest number of cells alive at once."""
    needed_bytes: int | None = None
    """Host memory in bytes predicted for all cells of one seed together; None if a prediction is missing."""
    available_bytes: int
    """Bytes of memory free on the machine before the cells ran."""
    notes: tuple[str, ...] = ()
    """Sentences on each deviation from the plan."""


class Ending(StrEnum):
    """Ending of the comparison as a whole."""

    COMPLETE = "complete"
    INTERRUPTED = "interrupted"


class ComparisonRecord(Frozen):
    """The complete record of a comparison."""

    model_config = ConfigDict(strict=False)

    id: str
    created: str
    """UTC, ISO 8601."""
    title: str
    """Preset or file of the baseline, or `configuration` if the run was given as an object."""
    base: ResolvedRun
    seeds: tuple[int, ...]
    treatments: tuple[str, ...]
    """Treatments in the order of listing, without the baseline."""
    ending: Ending
    protocol: Protocol
    cells: tuple[CellResult, ...]
    rounds: tuple[Round, ...]
    nudged: tuple[CellResult, ...] = ()
    """Nudged baseline of each seed (`drift`), of which only the training losses are meaningful."""

    def of(self, treatment: str) -> tuple[CellResult, ...]:
        """The cells of one treatment, without further baseline runs that were made only for pairing."""
        return tuple(one for one in self.cells if one.cell.treatment == treatment and one.cell.replicate <= 1)

    @property
    def planned(self) -> int:
        """Processes of each row over all seeds."""
        return len(self.seeds) * self.protocol.processes

    @property
    def references(self) -> tuple[CellResult, ...]:
        """Every run of the baseline with which a treatment can be paired, in the order of the cells."""
        return tuple(one for one in self.cells if one.cell.treatment == BASELINE)


def new_id() -> str:
    """Name of a new comparison: its UTC time, and four random hex digits that separate two of the same second."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def folder(record_id: str, home: Home) -> Path:
    """Folder of a comparison's record and page."""
    return home.reports / record_id


def save(record: ComparisonRecord, home: Home) -> Path:
    """Write `comparison.json` whole or not at all; returns its path. Raises `StorageError`."""
    path = folder(record.id, home) / "comparison.json"
    write_file(path, record.model_dump_json(indent=1).encode())
    return path


def read(record_id: str, home: Home) -> ComparisonRecord:
    """Read the record of an earlier comparison. Raises `UsageError` if there is none or it cannot be read."""
    path = folder(record_id, home) / "comparison.json"
    try:
        return ComparisonRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"there is no comparison {record_id!r} under {home.reports}") from None
    except (OSError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise UsageError(f"{path} cannot be read ({first}); delete its folder and compare again") from error
