"""Studies before they run: those of the library, new files, and plans of either."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.api.configuration import configure, with_initial_weights
from assay.config.home import Home, home_of
from assay.errors import UsageError, first_names

if TYPE_CHECKING:
    from assay.analysis.choose.best import Best
    from assay.config.run import Run
    from assay.data.progress import Progress
    from assay.records.study import Cell, StartFrom
    from assay.studies.base import Study
    from assay.studies.library import LibraryEntry
    from assay.studies.outlook import Outlook

_NAMED = 3
"""Levels that one sentence names."""


def library() -> "list[LibraryEntry]":
    """Return every published study of the library, with its scales."""
    from assay.studies.library import entry, names

    return [entry(name) for name in names()]


def published_study(name: str) -> "LibraryEntry":
    """Return one published study of the library. Raises `UsageError` if there is none of this name."""
    from assay.studies.library import entry

    return entry(name)


def plan(
    source: Path | str,
    *overrides: str,
    scale: str | None = None,
    calibrate: bool = False,
    loss_only: bool = False,
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
) -> "Outlook":
    """Predict memory and time of every row of a study, without training it.

    With `calibrate`, steps of few blocks are timed first, for at most a minute. The study is given as for `run`, and so
    is `loss_only`: such a study has no times. Rows that cannot run have the reason. Raises `UsageError` for a fault of
    the file or of the control.
    """
    from assay.data.progress import silent
    from assay.studies.outlook import outlook

    place = home_of(home)
    study, base = design_study(source, overrides, scale, place)
    study = without_times(study) if loss_only else study
    timed = not (loss_only or study.losses_only)
    if calibrate and not timed:
        raise UsageError("a study that measures losses only has no times to calibrate; leave out --calibrate")
    found = outlook(study, base, place, on_progress or silent, calibrate=calibrate, timed=timed)
    check_statements(study, {row.label for row in found.rows})
    return found._replace(notes=(*found.notes, *_in_part(study, overrides)))


def without_times(study: "Study") -> "Study":
    """Return a study as it runs without times: a second process of a seed would say the same, if none is asked for."""
    return study if study.processes is not None else study.model_copy(update={"processes": 1})


def new(name: str, kind: str = "factorial", folder: Path | str = ".") -> Path:
    """Write a commented file of a study, and return its path. Raises `UsageError` if it exists."""
    from assay.studies.schema import write_template

    return write_template(name, kind, Path(folder))


def design_study(
    source: Path | str,
    overrides: Sequence[str],
    scale: str | None,
    home: Home,
    initial: "Callable[[Run, Home], Run]" = with_initial_weights,
) -> "tuple[Study, Run]":
    """Return the study of a name or a file at a scale, and the configuration of its base.

    `initial` reads the weights that the base starts from, or for a prediction only their shape. Raises `UsageError`
    with one sentence on the first fault.
    """
    from assay.studies.library import find_study_file
    from assay.studies.reading import FULL, read_study

    study = read_study(find_study_file(source), scale or FULL, overrides)
    if study.constant is not None:
        study = study.model_copy(update={"constant": study.constant.in_home(home)})
    best = None if study.start_from is None else _best(study.start_from, home)
    run = initial(configure(study.base if best is None else best.run, study.overrides), home)
    if best is not None:
        study = study.model_copy(update={"started_from": best.told(run)})
    return study.on(run), run


def _best(start: "StartFrom", home: Home) -> "Best":
    """Return the best row of an earlier study. Raises `UsageError` if it is not known or not complete."""
    from assay.analysis.choose.best import best_row
    from assay.analysis.comparison import analyse
    from assay.records.study import StudyEnding
    from assay.studies.folder import find
    from assay.studies.library import command_of

    try:
        folder = find(home, start.study)
    except UsageError as error:
        first = f"; first run `{command}`" if (command := command_of(start.study)) else ""
        raise UsageError(f"this study starts from the answer of another one, but {error}{first}") from error
    record = folder.record()
    if record is None or folder.running or record.ending is not StudyEnding.COMPLETE:
        raise UsageError(
            f"the study {folder.id}, from which this one starts, is not complete; let it end, or resume it"
        )
    best = best_row(analyse(record), start.metric)
    return best._replace(sentence=" ".join((best.sentence, *record.doubts)))


def remarks(study: "Study", cells: "Sequence[Cell]", overrides: Sequence[str], tell: "Progress") -> tuple[str, ...]:
    """Return sentences on what is said in vain, which are told at once, and on the quantity that rows share."""
    from assay.records.study import AGAIN
    from assay.studies.constant import sentence

    idle = (*study.idle(), *_in_part(study, overrides))
    for said in idle:
        tell(said, None)
    if study.constant is None:
        return idle
    return (
        *idle,
        sentence(study.constant, {one.treatment: one.run for one in cells if one.treatment != AGAIN}),
    )


def _in_part(study: "Study", overrides: Sequence[str]) -> Iterator[str]:
    """Yield a sentence on each setting of the command line that some levels of a factor set otherwise."""
    for key, _, value in (one.partition("=") for one in overrides):
        levels = [f"{level} ({given})" for factor in study.factors() for level, given in factor.setting(key)]
        if levels:
            yield f"{key}={value} does not hold for rows of {first_names(levels, _NAMED)}, which set it."


def check_statements(study: "Study", rows: set[str]) -> None:
    """Raise `UsageError` if a study states something about a row, a metric or a formula that does not exist."""
    from assay.analysis.choose.criteria import check_context
    from assay.analysis.choose.ranking import check_ranking
    from assay.analysis.claims import check_expectations, check_published

    levels = {key: one.levels for key, one in study.by_key().items()}
    check_expectations(study.expects, rows, levels)
    check_context(study.context, levels)
    check_published(study.published, rows)
    check_ranking(study.weights, study.ranking)
