"""The record of a study: every cell with its result, and the protocol of the measurement.

The analysis, the table and the page read only this record. So they can be made anew on another day or machine, even if
the run folders are gone.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, WithJsonSchema, model_validator

from assay.config.base import Frozen, Setting
from assay.config.run import ResolvedRun
from assay.records.published import PublishedStudy
from assay.records.run import RunResult
from assay.records.timing import Round

BASELINE = "baseline"
"""Label of the control's row."""
AGAIN = "baseline (again)"
"""Label of the control's second runs, with the same configuration and seed."""
PLACEBO = "placebo"
"""Key of a level that changes nothing; its value is the label."""


def is_placebo(level: str) -> bool:
    """True if a level has the name of a placebo, ``placebo: LABEL``."""
    return level.startswith(f"{PLACEBO}: ")


class CellBranch(Frozen):
    """Another cell of the study, the trunk, with whose checkpoint a cell begins."""

    cell: str
    """Name of the trunk."""
    step: int
    """Steps of the trunk that are also the first ones of this cell."""
    seconds: float | None = None
    """Predicted seconds of these steps, which this cell saves; None if they were not predicted."""


class Cell(Frozen):
    """One run of a study."""

    treatment: str
    """Label of the row: `baseline`, `baseline (again)`, or one that names the levels, such as the argument of
    ``--with``."""
    levels: Mapping[str, str] = Field(default_factory=dict)
    """Level of each factor, by the factor's key; empty in records older than this field."""
    replicate: int = 0
    """Index among runs with the same configuration and seed; the baseline has at least two."""
    seed: int
    process: int = 0
    """Index among the processes of this row at this seed, which all train the same run."""
    branch: CellBranch | None = None
    """Trunk from which the cell branches; None if it trains all of its steps itself."""
    run: ResolvedRun

    @property
    def name(self) -> str:
        """Name of the cell, unique within a study."""
        again = f", time {self.replicate + 1}" if self.replicate and self.treatment == BASELINE else ""
        return f"{self.treatment}, {self.group}{again}"

    @property
    def group(self) -> str:
        """Seed and process; cells that share both take turns, as far as memory permits."""
        return f"seed {self.seed}" + (f", process {self.process + 1}" if self.process else "")

    def repeated(self, replicate: int) -> Self:
        """A copy of the cell, with the same configuration and seed, as another replicate."""
        return self.model_copy(update={"replicate": replicate})


_Level = WithJsonSchema({"type": ["string", "number", "boolean", "null"]}, "validation")
"""JSON schema of a level as a file writes it; it is read as a text."""


class Expectation(Frozen):
    """An expected change of one row against the control, or an effect of factors, stated before the study runs."""

    model_config = ConfigDict(use_attribute_docstrings=True, strict=False)

    row: str = ""
    """Label of the row, as the plan of the study lists it; empty if an effect is expected."""
    effect: Mapping[str, Annotated[str, _Level]] = Field(default_factory=dict, max_length=3)
    """A level of one factor for its main effect, or of two or three for their interaction; empty for a row."""
    metric: str
    """Name of a metric, such as `step_seconds`, `tensors_peak_bytes` or `val_loss`."""
    change: Literal["lower", "higher", "none"]
    size: float = Field(default=0.0, ge=0.0)
    """A fraction: the change is at least so large, or, if none is expected, at most so large."""

    @model_validator(mode="after")
    def _row_or_effect(self) -> Self:
        if bool(self.row) == bool(self.effect):
            raise ValueError("give either a row, or an effect such as {optimizations: lion}")
        return self

    @model_validator(mode="after")
    def _none_has_a_size(self) -> Self:
        if self.change == "none" and not self.size:
            raise ValueError("change: none needs a size: no experiment can show that a change is exactly zero")
        return self


class StartFrom(Setting):
    """An earlier study, whose best row is the base of a later one."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    study: str
    """Its id, the start of one, its name, or last."""
    metric: str = "val_loss"
    """Name of the metric that decides."""


class Stated(Setting):
    """Statements of a study from before it runs: its question, and how its answer will be judged."""

    model_config = ConfigDict(use_attribute_docstrings=True, strict=False)

    name: str = ""
    """Name of the study; if it has none, that of its file, with the scale."""
    question: str = ""
    """The question that the study answers, in one sentence."""
    expects: tuple[Expectation, ...] = ()
    """Expected changes, each with the keys row or effect, metric, change (lower, higher or none) and size."""
    target_loss: float | None = Field(default=None, gt=0.0)
    """A loss in nats per token; the answer has each row's time until it is reached for good."""
    loss_margin: float = Field(default=0.01, gt=0.0)
    """Losses that differ by less, in nats per token, count as the same; a faster row may not be worse by more."""
    weights: Mapping[str, float] = Field(default_factory=dict)
    """Weight of each metric by which the answer ranks the rows, such as step_seconds; empty: no ranking."""
    started_from: str = ""
    """Sentence on the earlier study whose best row is the base; empty if a preset or a file is."""
    context: tuple[str, ...] = ()
    """Factors that describe a case, such as size or data, and are no choice: each of their levels has an answer.
    In `vary`, `{role: context, levels: ...}` says so."""
    published: PublishedStudy | None = None
    """A published study that this one repeats: its document, its table, and what was wrong with it."""
    ranking: str | None = None
    """A published formula by which the answer ranks the rows, too, such as walsh-2023."""

    def stated(self) -> dict[str, Any]:
        """Return the fields of this class, with which a plan or a record of the study is built."""
        return {name: getattr(self, name) for name in Stated.model_fields}


class Halving(Frozen):
    """The rows of each rung, and how many of them run. A rung trains longer than the one before it."""

    rungs: tuple[tuple[str, ...], ...]
    """Labels of the rows of each rung. Rows at the same place of each rung have the same settings."""
    kept: tuple[int, ...] = Field(min_length=1)
    """Number of rows that run in each rung; in the first, all."""

    def share(self, row: str) -> float:
        """Return the share of the rows of a row's rung that run."""
        number = self.rung_of(row)
        return self.kept[number] / len(self.rungs[number])

    def rung_of(self, row: str) -> int:
        """Return the index of the rung that a row belongs to; the control runs with the first."""
        return next((number for number, rows in enumerate(self.rungs) if row in rows), 0)


class Curve(Frozen):
    """The loss and the time of each step of a run, and the evaluations."""

    train_loss: tuple[float | None, ...] = ()
    """Training loss of each step, from step 0, to the digits of a float32; None if it was not finite."""
    evaluations: tuple[tuple[int, float | None], ...] = ()
    """(steps completed, validation loss)."""
    step_seconds: tuple[float, ...] = ()
    """Seconds of each step, from step 0, to the microsecond; empty in older records."""
    unsteady: tuple[int, ...] = ()
    """Steps that are not among the steady ones: the first, those of warm-up, and the first of each timed block."""


class CellResult(Frozen):
    """A cell and its result."""

    cell: Cell
    wave: int
    """Index of the wave. Its cells were alive together and took turns; figures are paired within a wave only."""
    result: RunResult
    curve: Curve = Field(default_factory=Curve)
    forked: bool | None = None
    """True if its process was forked from a server that had imported torch; None in older records."""


class Protocol(Frozen):
    """Protocol of the measurement."""

    blocks: int
    """Timed blocks of each cell; 0 if the study measures no times."""
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


class StudyEnding(StrEnum):
    """Ending of the comparison as a whole."""

    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    BUDGET_REACHED = "budget reached"
    """The limit of its time ended it; the rest can be resumed."""


class ComparisonRecord(Stated):
    """The complete record of a comparison."""

    model_config = ConfigDict(strict=False)

    id: str
    created: str
    """UTC, ISO 8601."""
    title: str
    """Preset or file of the baseline, or `configuration` if the run was given as an object."""
    kind: str = "comparison"
    """Kind of study."""
    base: ResolvedRun
    seeds: tuple[int, ...]
    treatments: tuple[str, ...]
    """Treatments in the order of listing, without the baseline."""
    ending: StudyEnding
    protocol: Protocol
    cells: tuple[CellResult, ...]
    rounds: tuple[Round, ...]
    halving: Halving | None = None
    """Rungs of a search by successive halving; rows of later rungs that did not run are no treatments."""
    nudged: tuple[CellResult, ...] = ()
    """Nudged baseline of each seed (`drift`), of which only the training losses are meaningful."""
    held_back: tuple[Cell, ...] = ()
    """Cells that did not begin within the limit of time; empty if there was none."""
    unsealed: str = ""
    """Sentence on a file of the study that was read without a digest; empty if all were sealed."""

    @property
    def doubts(self) -> tuple[str, ...]:
        """The sentence on a file without a digest, as an answer ends with it; nothing if all were sealed."""
        return (f"{self.unsealed.capitalize()}.",) if self.unsealed else ()

    def of(self, treatment: str) -> tuple[CellResult, ...]:
        """The cells of one treatment, without further baseline runs that were made only for pairing."""
        return tuple(one for one in self.cells if one.cell.treatment == treatment and one.cell.replicate <= 1)

    @property
    def timed(self) -> bool:
        """True if cells took turns, so that their times can be compared."""
        return self.protocol.blocks > 0

    def measures(self, unit: str) -> bool:
        """True if figures of a timed metric with this unit can be compared: bytes always, times if cells took turns."""
        return self.timed or unit == "bytes"

    @property
    def planned(self) -> int:
        """Processes of each row over all seeds."""
        return len(self.seeds) * self.protocol.processes

    @property
    def references(self) -> tuple[CellResult, ...]:
        """Every run of the baseline with which a treatment can be paired, in the order of the cells."""
        return tuple(one for one in self.cells if one.cell.treatment == BASELINE)
