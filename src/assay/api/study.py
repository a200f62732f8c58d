"""Studies: compare, write and plan a file, run one, list, show, follow and resume them."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from assay.api.configuration import Source, configure, title_of, with_initial_weights
from assay.config.home import Home, home_of
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.api.study_results import StudyResult
    from assay.data.progress import Progress
    from assay.executors.base import News
    from assay.records.study import ComparisonRecord
    from assay.studies.folder import StudyFolder, StudyPlan
    from assay.studies.outlook import Outlook

_POLL_SECONDS = 0.5


class Listed(NamedTuple):
    """One study in the list of all."""

    id: str
    kind: str
    title: str
    """Preset or file of the base."""
    question: str
    status: str
    """`running`, `complete`, `interrupted`, or `stopped` if its process ended before it could write the record."""
    cells: int
    ended: int


def compare(
    source: Source = None,
    *overrides: str,
    treatments: str | Sequence[str],
    seeds: int = 3,
    processes: int | None = None,
    blocks: int = 5,
    timeout: float | None = None,
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
    on_news: "Callable[[News], None] | None" = None,
) -> "StudyResult":
    """Measure a baseline twice and every treatment at each of several seeds, and analyse the results.

    Each treatment, such as ``"sdpa_attention+bf16_mixed"``, is a row with `processes` processes at each seed. None
    takes as many as an interval needs. The processes take turns in `blocks` timed blocks. `timeout` limits the seconds
    that one of them may work. A Ctrl-C saves and stops the comparison, and keeps the cells that have finished. Raises
    `UsageError` before anything runs, and `StorageError` if the disk refuses.
    """
    from assay.data.progress import silent
    from assay.studies.kinds.comparison import ComparisonStudy
    from assay.studies.run import How, measured

    analyse = _analysis()
    place = home_of(home)
    base = with_initial_weights(configure(source, overrides), place)
    rows = (treatments,) if isinstance(treatments, str) else tuple(treatments)
    study = ComparisonStudy(treatments=rows, seeds=seeds, processes=processes)
    how = How(place, blocks, timeout, title_of(source), on_progress or silent, on_news or (lambda news: None))
    return analyse(measured(study.cells(base), base, how))


def run(
    file: Path | str,
    *,
    executor: str = "local",
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
    on_news: "Callable[[News], None] | None" = None,
) -> "StudyResult":
    """Run the study of a YAML file, and analyse its record.

    Raises `UsageError` for a fault of the file or of any cell before one is run, and `StorageError` if the disk
    refuses.
    """
    from assay.analysis.expectations import check_expectations
    from assay.data.progress import silent
    from assay.studies.reading import read_study
    from assay.studies.run import How, measured

    analyse = _analysis()
    place, study = home_of(home), read_study(Path(file))
    base = with_initial_weights(configure(study.base, study.overrides), place)
    cells = study.cells(base)
    check_expectations(study.expects, {cell.treatment for cell in cells})
    tell = on_news or (lambda news: None)
    how = How(
        *(place, study.blocks, study.timeout, study.base, on_progress or silent, tell),
        executor=executor,
        kind=study.kind,
        stated=study,
    )
    return analyse(measured(cells, base, how))


def plan(
    file: Path | str, *, home: Home | Path | str | None = None, on_progress: "Progress | None" = None
) -> "Outlook":
    """Predict memory and time of every row of a YAML file's study, without running anything.

    Rows that cannot run have the reason. Raises `UsageError` for a fault of the file or of the control.
    """
    from assay.analysis.expectations import check_expectations
    from assay.data.progress import silent
    from assay.studies.outlook import outlook
    from assay.studies.reading import read_study

    place, study = home_of(home), read_study(Path(file))
    base = with_initial_weights(configure(study.base, study.overrides), place)
    found = outlook(study, base, place, on_progress or silent)
    check_expectations(study.expects, {row.label for row in found.rows})
    return found


def new(name: str, kind: str = "factorial", folder: Path | str = ".") -> Path:
    """Write a commented file of a study, and return its path. Raises `UsageError` if it exists."""
    from assay.studies.template import write_template

    return write_template(name, kind, Path(folder))


def resume(
    name: str,
    *,
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
    on_news: "Callable[[News], None] | None" = None,
) -> "StudyResult":
    """Run exactly the cells of a stopped study that have no result, and analyse the whole.

    `name` is an id, the start of one, or ``last``. Raises `UsageError` if another process runs the study.
    """
    from assay.data.progress import silent
    from assay.studies.folder import find
    from assay.studies.run import resumed

    analyse = _analysis()
    place = home_of(home)
    return analyse(resumed(find(place, name), place, on_progress or silent, on_news or (lambda news: None)))


def show(name: str, home: Home | Path | str | None = None) -> "StudyResult":
    """Analyse a study with the cells that have ended. Raises `UsageError` if none has."""
    from assay.records.study import StudyEnding
    from assay.studies.fold import fold, record_of
    from assay.studies.folder import find

    place = home_of(home)
    folder = find(place, name)
    record = folder.record()
    if record is None:
        plan = _plan(folder)
        done = fold(plan, folder.events(), place)
        if not done.cells:
            raise UsageError(f"no cell of the study {folder.id} has ended yet")
        record = record_of(plan, done, StudyEnding.INTERRUPTED)
    return _analysis()(record)


def ls(home: Home | Path | str | None = None) -> list[Listed]:
    """Return all studies of a home, newest first. A study that cannot be read is listed as damaged."""
    from assay.studies.folder import folders

    place = home_of(home)
    return [_listed(folder, place) for folder in reversed(folders(place))]


def listed(name: str, home: Home | Path | str | None = None) -> Listed:
    """Return one study as in the list of all. Raises `UsageError` if there is none of this name."""
    from assay.studies.folder import find

    place = home_of(home)
    return _listed(find(place, name), place)


def follow(name: str, home: Home | Path | str | None = None) -> "Iterator[News]":
    """Yield the news of a study from its beginning, until it is over or its process has ended."""
    from assay.studies.folder import find
    from assay.studies.news import from_events

    place = home_of(home)
    folder = find(place, name)
    plan, offset = _plan(folder), 0
    while True:
        running = folder.running
        events, offset = folder.events_since(offset)
        yield from from_events(events, plan, place)
        if not running or (events and events[-1]["event"] == "over"):
            return
        time.sleep(_POLL_SECONDS)


def _analysis() -> "Callable[[ComparisonRecord], StudyResult]":
    """Return the analysis of records. Raises `UsageError` at once for a fault in a metric of the user's."""
    from assay.analysis.comparison import analyse
    from assay.analysis.metrics import metrics
    from assay.api.study_results import StudyResult

    metrics()
    return lambda record: StudyResult.of(analyse(record))


def _plan(folder: "StudyFolder") -> "StudyPlan":
    plan = folder.plan()
    if plan is None:
        raise UsageError(f"the study {folder.id} was written by an earlier version, without a plan")
    return plan


def _listed(folder: "StudyFolder", home: Home) -> Listed:
    from assay.records.study import StudyEnding
    from assay.studies.fold import fold

    try:
        plan, record = folder.plan(), folder.record()
        if record is not None and (plan is None or record.ending is StudyEnding.COMPLETE):
            count = len(record.cells) + len(record.nudged)
            status = "running" if folder.running else record.ending.value
            return Listed(folder.id, record.kind, record.title, record.question, status, count, count)
        plan = _plan(folder)
        ended = len(fold(plan, folder.events(), home).cells)
    except UsageError as error:
        return Listed(folder.id, "", "", str(error), "damaged", 0, 0)
    status = "running" if folder.running else "stopped" if record is None else record.ending.value
    return Listed(folder.id, plan.kind, plan.title, plan.question, status, len(plan.cells), ended)
