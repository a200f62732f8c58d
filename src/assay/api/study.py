"""Studies: compare, write and plan a file, run one or predict it, list, show, follow, stop and resume them."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from assay.api.configuration import Source, configure, on_device, title_of, with_initial_shape, with_initial_weights
from assay.api.designs import check_statements, design_study, library, new, plan, remarks, without_times
from assay.config.home import Home, home_of
from assay.errors import UsageError, short_text

if TYPE_CHECKING:
    from assay.analysis.factors.machines import Machines
    from assay.api.result_types import PredictedAnswer, StudyResult
    from assay.config.run import ResolvedRun
    from assay.data.progress import Progress
    from assay.executors.base import News
    from assay.records.study import ComparisonRecord
    from assay.studies.execution.study_listing import Listed, StudyStanding


def predict_comparison(
    source: Source = None,
    *overrides: str,
    device: str,
    treatments: str | Sequence[str] = (),
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
) -> "PredictedAnswer":
    """Predict a baseline and treatments on one GPU that may be absent, with every pair of treatments.

    Treatments are those of `compare`; without any, well-known techniques of the device are compared. Raises
    `UsageError` as `estimate` and `compare`.
    """
    from assay.api.result_types import PredictedAnswer
    from assay.data.progress import silent
    from assay.studies.kinds.comparison import ComparisonStudy, usual
    from assay.studies.kinds.comparison import treatments as read
    from assay.studies.predicted import predicted_study

    place, tell = home_of(home), on_progress or silent
    base, machine = on_device(with_initial_shape(configure(source, overrides), place), device)
    rows = (treatments,) if isinstance(treatments, str) else tuple(treatments) or usual(base, tell, machine)
    study = ComparisonStudy(base=title_of(source), treatments=tuple(read(base, rows)))
    found = predicted_study(study, base, device, machine, _Vocabulary(place, tell))
    return PredictedAnswer.from_value(found)


def predict(
    source: Path | str,
    *overrides: str,
    device: str,
    scale: str | None = None,
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
) -> "PredictedAnswer":
    """Predict every row of a study on one GPU that may be absent. The study is given as for `run`.

    Raises `UsageError` for a fault of the file, and if the control cannot be predicted there.
    """
    from assay.api.result_types import PredictedAnswer
    from assay.data.progress import silent
    from assay.studies.predicted import predicted_study

    place, tell = home_of(home), on_progress or silent
    study, run = design_study(source, overrides, scale, place, with_initial_shape)
    base, machine = on_device(run, device)
    found = predicted_study(study.on(base), base, device, machine, _Vocabulary(place, tell))
    check_statements(study, {row.label for row in found.rows})
    return PredictedAnswer.from_value(found)


class _Vocabulary:
    """Finds the size of the vocabulary of a run; its text is prepared only if nothing else tells the size."""

    def __init__(self, home: Home, tell: "Progress") -> None:
        self._home, self._tell = home, tell

    def __call__(self, run: "ResolvedRun") -> "ResolvedRun":
        known = run.with_vocabulary()
        if known.model.vocab_size is not None:
            return known
        from assay.data import prepare
        from assay.launch.prepare import leaving_nothing

        try:
            with leaving_nothing(run, self._home):
                return run.with_vocabulary(prepare(run.data, self._home.ready(), self._tell).vocab_size)
        except UsageError as reason:
            raise UsageError(f"the text decides the vocabulary: {reason}; or give model.vocab_size") from reason


__all__ = [
    "compare",
    "follow",
    "library",
    "listing_of",
    "ls",
    "machines",
    "new",
    "plan",
    "predict",
    "predict_comparison",
    "resume",
    "run",
    "show",
    "status",
    "stop",
]

_POLL_SECONDS = 0.5


def compare(
    source: Source = None,
    *overrides: str,
    treatments: str | Sequence[str] = (),
    seeds: int = 3,
    processes: int | None = None,
    blocks: int = 5,
    timeout: float | None = None,
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
    on_news: "Callable[[News], None] | None" = None,
) -> "StudyResult":
    """Measure a baseline twice and every treatment at each of several seeds, and analyse the results.

    Each treatment, such as ``"sdpa_attention+bf16_mixed"``, is a row; without any, well-known techniques are. A row has
    `processes` processes at each seed (None: enough for intervals), and they take turns in `blocks` timed blocks. Each
    may work `timeout` seconds. A Ctrl-C saves and stops. Raises `UsageError` before anything runs, and `StorageError`.
    """
    from assay.data.progress import silent
    from assay.studies.execution.run import Execution, measure_design
    from assay.studies.kinds.comparison import ComparisonStudy, usual

    analyse = _analysis()
    place = home_of(home)
    base = with_initial_weights(configure(source, overrides), place)
    rows = (treatments,) if isinstance(treatments, str) else tuple(treatments) or usual(base, on_progress or silent)
    study = ComparisonStudy(treatments=rows, seeds=seeds, processes=processes)
    how = Execution(place, blocks, timeout, title_of(source), on_progress or silent, on_news or (lambda news: None))
    return analyse(measure_design(study.cells(base), base, how))


def run(
    source: Path | str,
    *overrides: str,
    scale: str | None = None,
    executor: str = "local",
    max_hours: float | None = None,
    loss_only: bool = False,
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
    on_news: "Callable[[News], None] | None" = None,
) -> "StudyResult":
    """Run a study of the library or of a YAML file, and analyse its record.

    `overrides` change its base, after its own; `scale` names a scale, such as ``"small"``. Rows that this machine
    cannot run are left out. No cell begins that would end after `max_hours`; `resume` runs the rest. With `loss_only`
    cells run beside each other, untimed, with one thread each. Raises `UsageError` at the start, and `StorageError`.
    """
    from assay.data.progress import silent
    from assay.studies.design import able
    from assay.studies.execution.run import Execution, measure_design

    analyse = _analysis()
    place = home_of(home)
    study, base = design_study(source, overrides, scale, place)
    study = without_times(study) if loss_only else study
    cells = study.cells(base)
    check_statements(study, {cell.treatment for cell in cells})
    cells, notes = able(cells) if executor == "local" else (cells, ())  # other machines may run what this one cannot
    how = Execution(
        *(place, study.blocks, study.timeout, study.base, on_progress or silent, on_news or (lambda news: None)),
        executor=executor,
        kind=study.kind,
        stated=study,
        timed=not (loss_only or study.losses_only),
        halving=study.halving(),
        hours=max_hours,
        notes=(*notes, *remarks(study, cells, overrides, on_progress or silent)),
    )
    return analyse(measure_design(cells, base, how))


def resume(
    name: str,
    *,
    mode: str = "missing",
    max_hours: float | None = None,
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
    on_news: "Callable[[News], None] | None" = None,
) -> "StudyResult":
    """Run exactly the cells of a stopped study that have no result, and analyse the whole.

    `mode` is ``missing``, ``retry-failed``, ``force`` or ``read-only``. Raises `UsageError` if another process runs it.
    """
    from assay.data.progress import silent
    from assay.studies.execution.fold import Mode
    from assay.studies.execution.run import Execution, resume_study
    from assay.studies.folder import find

    if mode not in list(Mode):
        raise UsageError(f"there is no mode {short_text(mode)}; there are {', '.join(Mode)}")
    if mode == Mode.READ_ONLY:
        return show(name, home)
    analyse = _analysis()
    place = home_of(home)
    how = Execution(place, 1, None, "", on_progress or silent, on_news or (lambda news: None), hours=max_hours)
    return analyse(resume_study(find(place, name), how, Mode(mode)))


def stop(name: str, home: Home | Path | str | None = None, wait_seconds: float = 60.0) -> "Listed":
    """Request that the process of a running study save and stop, and wait for it.

    Raises `UsageError` if no process of this machine runs the study, or if it has not stopped in time.
    """
    import socket

    import psutil

    from assay.studies.folder import find

    place = home_of(home)
    folder = find(place, name)
    holder = folder.holder()
    if holder is None:
        raise UsageError(f"no process runs the study {folder.id}")
    if holder.host != socket.gethostname():
        raise UsageError(f"the study {folder.id} runs on {holder.host}; stop it there")
    with suppress(psutil.NoSuchProcess):  # it has just ended
        psutil.Process(holder.pid).terminate()  # on Windows it ends at once, without saving
    end = time.monotonic() + wait_seconds
    while folder.running:
        if time.monotonic() > end:
            raise UsageError(f"the study {folder.id} is still saving (process {holder.pid}); look again later")
        time.sleep(_POLL_SECONDS / 5)
    return listing_of(folder.id, place)


def show(name: str, home: Home | Path | str | None = None) -> "StudyResult":
    """Analyse a study with the cells that have ended. Raises `UsageError` if none has."""
    from assay.records.study import StudyEnding
    from assay.studies.execution.fold import fold, record_of
    from assay.studies.execution.study_listing import read_plan
    from assay.studies.folder import find

    place = home_of(home)
    folder = find(place, name)
    record = folder.record()
    if record is None:
        plan = read_plan(folder)
        done = fold(plan, folder.events(), place)
        if not done.cells:
            raise UsageError(f"no run of the study {folder.id} has ended yet")
        record = record_of(plan, done, StudyEnding.INTERRUPTED)
    return _analysis()(record)


def ls(home: Home | Path | str | None = None) -> "list[Listed]":
    """Return all studies of a home, newest first. A study that cannot be read is listed as damaged."""
    from assay.studies.execution.study_listing import list_study as list_one
    from assay.studies.folder import folders

    place = home_of(home)
    return [list_one(folder, place) for folder in reversed(folders(place))]


def listing_of(name: str, home: Home | Path | str | None = None) -> "Listed":
    """Return one study as in the list of all. Raises `UsageError` if there is none of this name."""
    from assay.studies.execution.study_listing import list_study as list_one
    from assay.studies.folder import find

    place = home_of(home)
    return list_one(find(place, name), place)


def status(name: str, home: Home | Path | str | None = None) -> "StudyStanding":
    """Return how far a study has come. Raises `UsageError` if there is none of this name, or if it has no plan."""
    from assay.studies.execution.study_listing import study_state
    from assay.studies.folder import find

    place = home_of(home)
    return study_state(find(place, name), place)


def machines(*names: str, home: Home | Path | str | None = None) -> "Machines":
    """Compare the changes of one study that ran on several machines, such as after `assay.runs.import_archive`.

    `names` are at least two studies. Raises `UsageError` if there are fewer, or if their rows are not the same runs.
    """
    from assay.analysis.factors.machines import machines as compared

    return compared([show(name, home) for name in names])


def follow(name: str, home: Home | Path | str | None = None) -> "Iterator[News]":
    """Yield the news of a study from its beginning, until it is over or its process has ended."""
    from assay.executors.news import from_events
    from assay.studies.execution.study_listing import read_plan
    from assay.studies.folder import find

    place = home_of(home)
    folder = find(place, name)
    plan, offset = read_plan(folder), 0
    while True:
        running = folder.running
        events, offset = folder.events_since(offset)
        yield from from_events(events, plan.waves, plan.protocol.blocks, place, plan.id)
        if not running or (events and events[-1].event == "over"):
            return
        time.sleep(_POLL_SECONDS)


def _analysis() -> "Callable[[ComparisonRecord], StudyResult]":
    """Return the analysis of records. Raises `UsageError` at once for a fault in a metric or a law of the user's.

    They are first needed when all cells have ended, which would be late.
    """
    from assay.analysis.comparison import analyse
    from assay.analysis.metrics.base import check_own
    from assay.api.result_types import StudyResult
    from assay.config.extensions import extension_folder
    from assay.config.run import Run
    from assay.optimizations import resolve_run

    if extension_folder("metrics") is not None:
        check_own(resolve_run(Run().with_vocabulary(256)))
    if extension_folder("scaling") is not None:
        from assay.scaling.laws import forms

        forms()
    return lambda record: StudyResult.from_value(analyse(record))
