"""Progress of a comparison: a board of its cells on a terminal, a plain line now and then elsewhere.

Both begin with what will run, and for how long as predicted. Once a block has ended, the time left is the sum over the
remaining pieces of work. Each counts as long as the mean of its kind so far. Starting a process takes seconds and a
timed block a fraction of one, so a mean over all kinds would mislead. A cell's end takes about as long as a block.

Cells that run beside each other differ in length. A study of scaling has one that is as long as all
others together. So the time of a cell is taken as proportional to its FLOPs, 6·N·D, at the mean rate of those that have
ended. The time left is at least that of the longest cell. It is also at least the sum over all cells, divided by the
number that work at once.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from assay.analysis.factors.layout import cell_names, planned_names
from assay.cost import parameter_count
from assay.errors import legible
from assay.executors.base import Ended, Interrupting, News, Piece, Planned, Stepped, Turn, Working
from assay.records.study import Cell
from assay.studies.drift import NUDGED
from assay.units import format_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.records.study import Cell


class Untimed:
    """Cells with the times of their starts and ends."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began: dict[str, float] = {}
        self._took: list[tuple[float, float]] = []
        """Work and seconds of each cell that has ended."""
        self._most = 1

    def start(self, cell: Cell) -> None:
        """Note that a cell begins."""
        self._began[cell.name] = self._clock()
        self._most = max(self._most, len(self._began))

    def end(self, cell: Cell) -> None:
        """Note that a cell has ended; one that ended earlier took no time here."""
        began = self._began.pop(cell.name, None)
        if began is not None:
            self._took.append((_work(cell), self._clock() - began))

    def seconds_left(self, cells: Sequence[Cell]) -> float | None:
        """Return the seconds in which these cells will have ended; None before one has."""
        if not self._took:
            return None
        rate = sum(seconds for _, seconds in self._took) / sum(work for work, _ in self._took)
        now = self._clock()
        rests = [max(0.0, rate * _work(one) - now + self._began.get(one.name, now)) for one in cells]
        return max((*rests, sum(rests) / self._most)) if rests else 0.0


def _work(cell: Cell) -> float:
    run = cell.run.with_vocabulary()
    size = parameter_count(run.model) if run.model.vocab_size is not None else run.model.n_layer * run.model.n_embd**2
    return float(size * run.training.steps * run.tokens_per_step)


class Board:
    """State of every cell; `clock` tells the time of the news that is heard."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.cells: list[Cell] = []
        self.rows: dict[str, str] = {}
        """Short name of each row by its treatment."""
        self.names: dict[str, str] = {}
        """Short name of each cell by its name."""
        self.states: dict[str, str] = {}
        self.ended: dict[str, str] = {}
        self.working: str | None = None
        self.wave = 0
        self._last: Stepped | None = None
        """The last step of any cell."""
        self._waves: tuple[tuple[Cell, ...], ...] = ()
        self._blocks = 0
        self._owed: dict[str, Counter[Piece]] = {}
        self._took: dict[Piece, list[float]] = {}
        self._began: tuple[Piece, float] | None = None
        self._until: float | None = None
        """Predicted end of all cells; None if it is not known."""
        self._untimed = Untimed(clock)

    def hear(self, news: News) -> None:
        """Update the board by one event of the comparison."""
        if isinstance(news, Planned):
            self._plan(news)
        elif isinstance(news, Turn):
            self._stop_clock()
            self._began = (news.piece, self._clock())
            self._owed[news.cell.name][news.piece] = max(0, self._owed[news.cell.name][news.piece] - 1)
            self.working = news.cell.name
            if not self._blocks:
                self._untimed.start(news.cell)
            self.wave = next((at for at, wave in enumerate(self._waves) if news.cell in wave), self.wave)
            again = f"timing repeated {news.number - self._blocks}×"
            block = f"timing {news.number}/{self._blocks}" if news.number <= self._blocks else again
            self.states[news.cell.name] = {"start": "starting", "block": block}.get(news.piece, "finishing")
        elif isinstance(news, Working) and not self.states[news.cell.name].startswith("timing"):
            self.states[news.cell.name] = news.phase.replace("_", " ")
        elif isinstance(news, Stepped):
            self._last = news
        elif isinstance(news, Ended):
            self.end(news.cell, news.result.status.value)

    def end(self, cell: Cell, status: str) -> None:
        """Note that a cell has ended."""
        self._stop_clock()
        self._owed[cell.name].clear()
        self._untimed.end(cell)
        self.ended[cell.name] = self.states[cell.name] = status.replace("_", " ")

    @property
    def shown(self) -> "list[tuple[Cell, ...]]":
        """All waves if there are few cells, else only the wave at work."""
        return list(self._waves) if len(self.cells) <= 24 else [self._waves[self.wave]]

    @property
    def pieces(self) -> tuple[int, int]:
        """Number of finished pieces of work, and of all. Pieces that an ended cell will not do count as finished."""
        total = len(self.cells) * (self._blocks + 2)
        return total - sum(count.total() for count in self._owed.values()), total

    def seconds_left(self) -> float | None:
        """Seconds left; as predicted before the first block has ended, because no earlier piece resembles it."""
        predicted = None if self._until is None else max(0.0, self._until - time.monotonic())
        if not self._blocks:
            left = self._untimed.seconds_left([one for one in self.cells if one.name not in self.ended])
            return predicted if left is None else left
        if "block" not in self._took:
            return predicted
        means = {piece: sum(took) / len(took) for piece, took in self._took.items()}
        pieces = sum(self._owed.values(), Counter[Piece]())
        return sum(count * means.get(piece, means["block"]) for piece, count in pieces.items())

    def progress(self) -> str:
        """Return a text such as ``"3 of 14 runs, about 1 min 20 s left"``."""
        left = self.seconds_left()
        text = f"{len(self.ended)} of {len(self.cells)} runs"
        return f"{text}, about {_about(left)} left" if left else text

    def opening(self) -> str:
        """Return a text such as ``"7 configurations × 3 seeds and 3 more baselines, about 40 s on this machine"``."""
        named = [one for one in self.cells if one.treatment != NUDGED]
        rows, seeds = len({one.treatment for one in named}), len({one.seed for one in named})
        repeats = 1 + max((one.process for one in named), default=0)
        more = len(self.cells) - rows * seeds * repeats
        text = f"{_count(rows, 'configuration')} × {_count(seeds, 'seed')}"
        text += f" × {repeats} repeats" if repeats > 1 else ""
        text += f" and {_count(more, 'more baseline')}" if more > 0 else ""
        left = self.seconds_left()
        return f"{text}, about {_about(left)} on this machine" if left else text

    def loss(self) -> str:
        """Return a text such as ``"loss 3.9099 after 40 of 60 steps: baseline, seed 0"``; empty if no cell trains."""
        last = self._last  # another thread may replace it
        if last is None or last.cell.name in self.ended:
            return ""
        steps = f"{last.steps} of {last.cell.run.training.steps} steps"
        return f"loss {last.loss:.4f} after {steps}: {self.names[last.cell.name]}"

    def _plan(self, plan: Planned) -> None:
        self._waves, self._blocks = plan.waves, plan.blocks
        self.cells = [cell for wave in plan.waves for cell in wave]
        self.rows = planned_names(self.cells)
        self.names = cell_names(self.cells, self.rows)
        self._until = None if plan.seconds is None else time.monotonic() + plan.seconds
        pieces: dict[Piece, int] = {"start": 1, "block": plan.blocks, "finish": 1}
        self._owed = {cell.name: Counter(() if cell.name in self.ended else pieces) for cell in self.cells}
        self.states = {cell.name: self.ended.get(cell.name, "waiting") for cell in self.cells}

    def _stop_clock(self) -> None:
        if self._began is not None:
            piece, since = self._began
            self._took.setdefault(piece, []).append(self._clock() - since)
            self._began = None


_GOOD = ("done", "budget reached")
_QUIET_SECONDS = 15.0
"""Least time between two lines of progress that cannot be redrawn."""
_QUIET_SHARE = 0.05
"""Least time between them as a share of the time so far."""
STOPPING = "stopping: every run finishes its step and saves; Ctrl-C again to stop at once"


class Watcher(AbstractContextManager["Watcher"], Protocol):
    """Receives the events of a comparison and shows them."""

    def __call__(self, news: News) -> None:
        """Show an event of the comparison."""

    def prepare(self, message: str, fraction: float | None) -> None:
        """Show the progress of the corpus preparation."""


class StudyLines:
    """Plain lines for notes and failures, and in between a line on the progress from time to time."""

    def __init__(self) -> None:
        self._board = Board()
        self._began = time.monotonic()
        self._last: float | None = None
        """Time of the last line; None before the first."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def prepare(self, message: str, fraction: float | None) -> None:
        """Print a note, or from time to time how far a preparation has come."""
        if fraction is None:
            self._print(message)
        elif self._is_due():
            self._print(f"{message} ({fraction:.0%})")

    def __call__(self, news: News) -> None:
        """Print a line if the event deserves one, or if the last one was long ago."""
        self._board.hear(news)
        if isinstance(news, Planned):
            self._print(self._board.opening())
        elif isinstance(news, Ended) and self._board.ended[news.cell.name] not in _GOOD:
            ending = f"{self._board.ended[news.cell.name]} ({news.result.reason})"
            self._print(f"{self._board.names[news.cell.name]}: {ending}; {self._board.progress()}")
        elif isinstance(news, Interrupting):
            self._print(STOPPING)
        elif (cell := self._board.working) is not None and self._is_due():
            self._print(f"{self._board.progress()}; {self._board.names[cell]}: {self._board.states[cell]}")

    def _is_due(self) -> bool:
        """True if the last line is old enough; lines of long studies are farther apart."""
        now = time.monotonic()
        return self._last is None or now - self._last >= max(_QUIET_SECONDS, _QUIET_SHARE * (now - self._began))

    def _print(self, text: str) -> None:
        self._last = time.monotonic()
        note(text)


class Live:
    """The board, redrawn as the cells advance."""

    def __init__(self) -> None:
        from rich.live import Live as Display

        from assay.report.kit.blocks import legible_console

        self._board = Board()
        self._notice = "preparing"
        self._display = Display(
            console=legible_console(stderr=True, highlight=False),
            get_renderable=self._draw,
            transient=True,
            refresh_per_second=8,
        )

    def __enter__(self) -> Self:
        self._display.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._display.stop()

    def prepare(self, message: str, fraction: float | None) -> None:
        """Print a message above the board, or show the fraction in the notice."""
        if fraction is None:
            self._display.console.print(message, markup=False)
        else:
            self._notice = f"{message} {fraction:.0%}"

    def __call__(self, news: News) -> None:
        """Update the board, which redraws itself. An unsuccessful ending stays above it."""
        self._board.hear(news)
        if isinstance(news, Planned):
            self._notice = ""
            self._display.console.print(self._board.opening(), markup=False)
        elif isinstance(news, Interrupting):
            self._notice = STOPPING
        elif isinstance(news, Ended) and (ending := self._board.ended[news.cell.name]) not in _GOOD:
            said = f"{self._board.names[news.cell.name]}: {ending} ({news.result.reason})"
            self._display.console.print(said, markup=False, style="red")

    def _draw(self) -> "RenderableType":
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        notice = Text(self._notice, style="yellow")
        if not self._board.cells:
            return notice
        behind, total = self._board.pieces
        grid = Table.grid(padding=(0, 3, 0, 0))
        columns = _columns(self._board.shown)
        grid.add_row("", *(Text(group, style="dim") for group, _ in columns))
        for name in dict.fromkeys(name for _, cells in columns for name in cells):
            row = Text(self._board.rows[name])
            grid.add_row(row, *(self._state(cells[name]) if name in cells else "" for _, cells in columns))
        bar = Table.grid(padding=(0, 2, 0, 0))
        bar.add_row(ProgressBar(total=total, completed=behind, width=32), Text(self._board.progress()))
        loss = Text(self._board.loss(), no_wrap=True, overflow="ellipsis")
        return Group(grid, Text(), bar, *(line for line in (loss, notice) if line))

    def _state(self, cell: "Cell") -> "RenderableType":
        from rich.text import Text

        state = self._board.states[cell.name]
        if cell.name in self._board.ended:
            return Text(f"{'✓' if state in _GOOD else '✗'} {state}", style="green" if state in _GOOD else "red")
        if cell.name == self._board.working:
            return Text(f"▶ {state}", style="bold cyan")
        return Text(f"  {state}", style="dim")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _about(seconds: float) -> str:
    """Return a time as exactly as one can be foretold: a minute or more to ten seconds."""
    return f"{seconds:.0f} s" if seconds < 60 else format_seconds(round(seconds, -1))


def note(text: str) -> None:
    """Print a line on standard error, and flush it so that it is seen at once."""
    print(legible(text), file=sys.stderr, flush=True)


def _columns(waves: "list[tuple[Cell, ...]]") -> "list[tuple[str, dict[str, Cell]]]":
    """Return a column of cells by treatment for each wave; a wave joins one of its seed that lacks its treatments."""
    found: list[tuple[str, dict[str, Cell]]] = []
    for wave in waves:
        cells = {cell.treatment: cell for cell in wave}
        joined = (column for group, column in found if group == wave[0].group and not column.keys() & cells.keys())
        column = next(joined, None)
        if column is None:
            found.append((wave[0].group, cells))
        else:
            column.update(cells)
    return found


def watcher() -> Watcher:
    """Return the kind of display that standard error supports."""
    return Live() if sys.stderr.isatty() else StudyLines()
