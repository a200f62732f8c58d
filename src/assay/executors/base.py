"""An executor runs the waves of a study, and reports news, which a study records and a terminal shows.

A wave is the unit that an executor may run anywhere. Its cells are alive together and take turns, so that all of them
see the same machine. Cells that are not timed take no turns; those of a wave then follow one another. To add an
executor, drop a file with a subclass of `Executor` into the folder `executors` of `ASSAY_EXTENSIONS`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from assay.config.home import Home
from assay.records.events import GO, LogEvent
from assay.records.run import RunResult
from assay.records.study import Cell, CellResult, StudyEnding
from assay.records.timing import Round

Wave = tuple[Cell, ...]
Piece = Literal["start", "block", "finish"]


class Folder(Protocol):
    """The folder of a cell's run."""

    @property
    def id(self) -> str:
        """The run's id."""

    def events(self) -> list[LogEvent]:
        """All events, oldest first."""


class RunningCell(Protocol):
    """A running cell: the part of `assay.launch.child.Child` that this module uses."""

    @property
    def finished(self) -> bool:
        """True if the cell has ended."""

    @property
    def upcoming(self) -> str | None:
        """The piece of work that the cell waits for; `repeat` if it can run one more block."""

    @property
    def folder(self) -> Folder:
        """The cell's folder."""

    @property
    def pid(self) -> int:
        """Number of the process that leads the cell's own session, or its group."""

    def turn(self, word: str = GO) -> Iterable[LogEvent]:
        """Grant the next piece of work, or one more block, and yield its events."""

    def events(self) -> Iterable[LogEvent]:
        """Yield all events until the cell has ended, for a cell without turns."""

    def interrupt(self) -> None:
        """Request that the cell save and end."""

    def kill(self) -> None:
        """Kill the cell at once."""

    def result(self) -> RunResult:
        """Let the cell finish, and return its result."""


Start = Callable[[Cell], AbstractContextManager[RunningCell]]


@dataclass(frozen=True)
class Planned:
    """The waves to run, and the number of blocks of each cell."""

    waves: tuple[Wave, ...]
    blocks: int
    study: str = ""
    """Id of the study; empty where a wave alone is followed."""
    seconds: float | None = None
    """Predicted seconds of all that has no result yet; None if they are not known."""


@dataclass(frozen=True)
class Turn:
    """A cell begins a piece of its work."""

    cell: Cell
    piece: Piece
    number: int = 0
    """Number of a block, from 1."""


@dataclass(frozen=True)
class Working:
    """A cell entered a phase within its turn."""

    cell: Cell
    phase: str


@dataclass(frozen=True)
class Stepped:
    """A cell has done a training step whose loss is finite."""

    cell: Cell
    steps: int
    """Number of steps that it has done."""
    loss: float
    """Training loss of the step in nats per token."""


@dataclass(frozen=True)
class Started:
    """The process of a cell exists."""

    cell: Cell
    run: str
    """Id of its run."""
    wave: int


@dataclass(frozen=True)
class RoundEnded:
    """Every living cell of a wave has run one timed block."""

    round: Round


@dataclass(frozen=True)
class Ended:
    """A cell has ended."""

    cell: Cell
    result: RunResult
    wave: int = 0


@dataclass(frozen=True)
class Interrupting:
    """The living cells are requested to save and end."""


News = Planned | Turn | Started | Working | Stepped | RoundEnded | Ended | Interrupting
Listener = Callable[[News], None]


@dataclass
class Conducted:
    """Results of the cells and of the rounds."""

    cells: list[CellResult] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    ending: StudyEnding = StudyEnding.COMPLETE


@dataclass(frozen=True)
class Work:
    """The waves of a study, and what running them needs."""

    waves: Iterable[tuple[int, Wave]]
    """Numbered waves. An executor takes the next one when it can begin it. They end early at a limit of time."""
    start: Start
    """Starts the process of a cell on this machine."""
    blocks: int
    """Timed blocks of each cell. 0: cells are not timed, take no turns, and may run beside each other."""
    tell: Listener
    """Receives the news."""
    home: Home
    folder: Path
    """Folder of the study, from which a process on another machine can run a wave (`executors.elsewhere`)."""
    slots: int = 1
    """Cells that may run beside each other if they are not timed."""


class Executor(ABC):
    """Runs waves, one after the other or several at once."""

    name: ClassVar[str]
    """Name on the command line."""

    def check(self) -> None:
        """Raise `UsageError` if the executor cannot run here; called before anything is written."""
        return

    @abstractmethod
    def run(self, work: Work) -> Conducted:
        """Run the waves and return what their cells did.

        A Ctrl-C lets the living cells save and end, and the result then says that it was interrupted.
        """
