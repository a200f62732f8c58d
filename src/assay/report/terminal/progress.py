"""Progress of a comparison: a board of its cells on a terminal, plain lines elsewhere."""

import sys
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from assay.errors import legible
from assay.executors.base import Ended, Interrupting, News, Planned, Turn
from assay.report.terminal.board import Board

if TYPE_CHECKING:
    from rich.console import RenderableType

    from assay.records.study import Cell

_GOOD = ("done", "budget reached")
STOPPING = "stopping: every cell finishes its step and saves; Ctrl-C again to stop at once"


class Watcher(AbstractContextManager["Watcher"], Protocol):
    """Receives the events of a comparison and shows them."""

    def __call__(self, news: News) -> None:
        """Show an event of the comparison."""

    def prepare(self, message: str, fraction: float | None) -> None:
        """Show the progress of the corpus preparation."""


class StudyLines:
    """Plain lines for starts, rounds and endings."""

    def __init__(self) -> None:
        self._board = Board()
        self._round = (-1, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def prepare(self, message: str, fraction: float | None) -> None:
        """Print messages that have no fraction."""
        if fraction is None:
            note(message)

    def __call__(self, news: News) -> None:
        """Print a line if the event deserves one."""
        self._board.hear(news)
        if isinstance(news, Turn) and news.piece == "start":
            note(f"{news.cell.name}: starting")
        elif isinstance(news, Turn) and news.piece == "block" and self._round != (self._board.wave, news.number):
            self._round = (self._board.wave, news.number)
            note(f"{news.cell.group}: round {news.number}; {self._board.progress()}")
        elif isinstance(news, Ended):
            why = f" ({news.result.reason})" if news.result.reason else ""
            note(f"{news.cell.name}: {self._board.ended[news.cell.name]}{why}; {self._board.progress()}")
        elif isinstance(news, Interrupting):
            note(STOPPING)


class Live:
    """The board, redrawn as the cells advance."""

    def __init__(self) -> None:
        from rich.live import Live as Display

        from assay.report.terminal.console import legible_console

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
        elif isinstance(news, Interrupting):
            self._notice = STOPPING
        elif isinstance(news, Ended) and (ending := self._board.ended[news.cell.name]) not in _GOOD:
            self._display.console.print(f"{news.cell.name}: {ending} ({news.result.reason})", markup=False, style="red")

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
            grid.add_row(Text(name), *(self._state(cells[name]) if name in cells else "" for _, cells in columns))
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
