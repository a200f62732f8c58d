"""What a person sees of a run while it goes: a live bar on a terminal, a line now and then in a file or a pipe.

Both show the same meter, which only listens to the run's events.
"""

import sys
from types import TracebackType
from typing import Self

from assay.runs.log import Event
from assay.runs.progress import Lines, Meter, remark


class Bar:
    """A bar that redraws itself, with remarks above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._meter = Meter()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            console=Console(stderr=True, markup=False, highlight=False),
            transient=True,
            refresh_per_second=8,
        )
        self._task = self._progress.add_task("preparing", total=None, figures="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def __call__(self, event: Event) -> None:
        """Redraw, and say what the event is worth."""
        self._meter.hear(event)
        meter = self._meter
        if event["event"] == "prepare" and event["fraction"] is not None:
            self._progress.update(
                self._task, description=event["message"], total=100, completed=round(100 * event["fraction"])
            )
        else:
            self._progress.update(
                self._task,
                description=meter.phase,
                total=meter.steps or None,
                completed=meter.done,
                figures=meter.figures(),
            )
        if (text := remark(event)) is not None:
            self._progress.console.print(text)


def watcher() -> Lines | Bar:
    """The kind that standard error can show."""
    return Bar() if sys.stderr.isatty() else Lines()
