"""The option ``--track``: copies of runs for other programs, and the commands that show them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay.config import Home
    from assay.tracking.following import Tracking

Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track", metavar="NAME", help="Also copy runs for tensorboard, mlflow, wandb or trackio, offline; repeatable."
    ),
]


@contextmanager
def copying(names: list[str] | None, home: "Home") -> "Iterator[Tracking]":
    """Yield the listener of the named trackers. Raises `UsageError` for an unknown or a missing one."""
    from assay.api.runs import tracking
    from assay.cli.console import note

    with tracking(*(names or ()), home=home, on_message=note) as listener:
        yield listener


def show_how_to_look(listener: "Tracking") -> None:
    """Print the command that shows the copies of each tracker."""
    from assay.cli.console import note

    for command in listener.looks:
        note(command)
