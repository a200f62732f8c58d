"""An executor runs the waves of a study, and reports news, which a study records and a terminal shows.

A wave is the unit that an executor may run anywhere. Its cells are alive together and take turns, so that all of them
see the same machine. To add an executor, drop a file with a subclass of `Executor` into the folder `executors` of
`ASSAY_EXTENSIONS`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

from assay.records.events import GO
from assay.records.run import RunResult
from assay.records.study import Cell, CellResult, Round, StudyEnding
from assay.store.event_log import Event

Wave = tuple[Cell, ...]
Piece = Literal["start", "block", "finish"]


class Folder(Protocol):
    """The folder of a cell's run."""

    @property
    def id(self) -> str:
        """The run's id."""

    def events(self) -> list[Event]:
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

    def turn(self, word: str = GO) -> Iterable[Event]:
        """Grant the next piece of work, or one more block, and yield its events."""

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


News = Planned | Turn | Started | Working | RoundEnded | Ended | Interrupting
Listener = Callable[[News], None]


@dataclass
class Conducted:
    """Results of the cells and of the rounds."""

    cells: list[CellResult] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    ending: StudyEnding = StudyEnding.COMPLETE


class Executor(ABC):
    """Runs waves, one after the other or several at once."""

    name: ClassVar[str]
    """Name on the command line."""

    @abstractmethod
    def run(self, waves: Sequence[tuple[int, Wave]], start: Start, blocks: int, tell: Listener) -> Conducted:
        """Run numbered waves and return what their cells did.

        `start` starts the process of a cell, and `blocks` is the number of its timed blocks. `tell` receives the news.
        A Ctrl-C lets the living cells save and end, and the result then says that it was interrupted.
        """
