"""Copy runs to trackers: while they are trained or compared, or from records that exist."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from assay.config.base import absolute
from assay.config.home import Home, home_of
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.tracking.following import Tracking


_COPY_SECONDS = 3600.0
"""Time for the copy of one run, while nothing else waits."""


class Tracked(NamedTuple):
    """Runs that were copied to a tracker."""

    tracker: str
    folder: str
    runs: list[str]
    failure: str | None
    """Reason why the other runs were not copied."""
    look: str | None
    """Command that shows the copies; None if there are none."""


def track(name: str, *, to: str, folder: Path | str | None = None, home: Home | Path | str | None = None) -> Tracked:
    """Copy a run, or all runs of a study, to a tracker: tensorboard, mlflow, wandb or trackio.

    Files are written to `folder`, by default ``tracked/NAME`` of the home, and nothing is sent away. A run that was
    copied before is replaced. Raises `UsageError` if there is no such record, or if the library is not installed.
    """
    from assay.tracking.following import Tracking

    place = home_of(home).checked()
    where = None if folder is None else absolute(folder)
    if where is not None and where.exists() and not where.is_dir():
        raise UsageError(f"{where} is a file; name a folder for the copies")
    group, runs = _runs(place, name)
    with Tracking([to], place, lambda sentence: None, where) as tracking:
        for run, title in runs.items():
            tracking.send(run, title, group, _COPY_SECONDS)
        look = next(iter(tracking.looks), None)
    return Tracked(to, str(where or place.tracked / to), tracking.runs, tracking.failures.get(to), look)


def tracking(
    *names: str,
    home: Home | Path | str | None = None,
    on_message: Callable[[str], None] | None = None,
) -> "Tracking":
    """Return a listener that has runs copied to trackers while they are trained or compared.

    It is a context manager, and copies to ``tracked/NAME`` of the home:

        with assay.runs.tracking("tensorboard") as tracking:
            assay.train("demo", on_event=tracking.event)
            assay.compare("demo", treatments="lion", on_news=tracking.news)

    A tracker that fails never ends a run; `on_message` receives a sentence, which is printed by default. Raises
    `UsageError` for an unknown name, and if a library is not installed.
    """
    from assay.tracking.following import Tracking, print_note

    return Tracking(names, home_of(home), on_message or print_note)


def _runs(home: Home, name: str) -> tuple[str, dict[str, str]]:
    """Return the id of a study, and the title of each of its runs; or an empty id, and the run that is meant."""
    from assay.store.lookup import find as find_run
    from assay.studies.archived import runs_of
    from assay.studies.folder import find as find_study

    run = study = None
    with suppress(UsageError):
        study = None if name == "last" else find_study(home, name)
    try:
        run = find_run(home, name)
    except UsageError:
        if study is None:
            raise
    if run is not None and study is not None:
        raise UsageError(f"{name!r} is the start of the run {run.id} and of the study {study.id}; write more of it")
    if run is not None:
        return "", {run.id: ""}
    assert study is not None
    return study.id, {folder.id: cell for folder, cell in runs_of(study, home).items()}
