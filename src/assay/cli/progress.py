"""Progress of a run: a live bar on a terminal, occasional lines in a file or a pipe.

Both show the same meter, which only receives the run's events.
"""

import sys
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from assay.launch.progress import Meter, RunLines, remark
from assay.records.events import PrepareEvent, event_of
from assay.store.event_log import Event

if TYPE_CHECKING:
    from rich.progress import Progress


def _progress(meter: Meter) -> "Progress":
    """Return a bar, and below it the figures of the meter, which is read at every redraw as time advances."""
    from rich.console import RenderableType
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.text import Text

    from assay.report.kit.blocks import legible_console

    class Figures(Progress):
        def get_renderables(self) -> "Iterable[RenderableType]":
            yield self.make_tasks_table(self.tasks)
            yield from map(Text, filter(None, meter.lines()))

    return Figures(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        console=legible_console(stderr=True, markup=False, highlight=False),
        transient=True,
        refresh_per_second=8,
    )


class Bar:
    """A bar that redraws itself, with figures below and remarks above it."""

    def __init__(self) -> None:
        self._meter = Meter()
        self._progress = _progress(self._meter)
        self._task = self._progress.add_task("preparing", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, line: Event) -> None:
        """Redraw the bar, and print a remark if the event has one."""
        event = event_of(line)
        self._meter.hear(event)
        meter = self._meter
        if isinstance(event, PrepareEvent) and event.fraction is not None:
            completed = round(100 * event.fraction)
            self._progress.update(self._task, description=event.message, total=100, completed=completed)
        else:
            done, total = meter.position
            self._progress.update(self._task, description=meter.phase, total=total or None, completed=done)
        if (text := remark(event)) is not None:
            self._progress.console.print(text)


def watcher() -> RunLines | Bar:
    """Return the kind of display that standard error supports."""
    return Bar() if sys.stderr.isatty() else RunLines()
