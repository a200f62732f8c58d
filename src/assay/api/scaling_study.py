"""Studies of scaling: design one that ends in time, run it, and ask for its points and its answer."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.api.configuration import Source, configure, title_of
from assay.config.home import Home, home_of
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.api.result_types import StudyResult
    from assay.api.scaling_results import ScalingResult, StudyPoints
    from assay.data.progress import Progress
    from assay.executors.base import News
    from assay.studies.isoflop_plan import ScalingPlan
    from assay.studies.kinds.isoflop import Isoflop

_SHARE = 0.9
"""Share of the budget that the predicted time may take; neighbours slow each other somewhat."""
_UNTIMED = ("training.check_values=false", "training.measure_memory=false", "training.eval_interval=0")
"""Settings of every cell before the user's: short runs would spend more time on checks than on training."""


def plan(
    source: Source = None,
    *overrides: str,
    budget_seconds: float,
    widths: Sequence[int] | None = None,
    tokens_per_parameter: float | None = None,
    seeds: int | None = None,
    branches: bool = False,
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
) -> "ScalingPlan":
    """Design the largest study that ends within so many seconds here; steps of every size are timed first.

    `source` is the largest model; smaller ones keep its aspect ratio and the width of its heads. `seeds` are those of
    each fitted run, by default 3. With `branches` the fitted runs of a size are decay branches of the longest one.
    Raises `UsageError` if it has no other sizes, or if the time is too short.
    """
    from assay.data.progress import silent
    from assay.studies.isoflop_budget import (
        MOST_EPOCHS,
        SEEDS,
        TOKENS_PER_PARAMETER,
        DesignLimits,
        Wanted,
        largest_study,
        study_seconds,
    )
    from assay.studies.isoflop_plan import ScalingPlan, measure_sizes, widths_of

    if not budget_seconds > 0:
        raise UsageError(f"a budget of {budget_seconds:g} seconds is not possible; give a positive time such as 2h")
    base = configure(source, (*_UNTIMED, *overrides))
    here = measure_sizes(base, tuple(widths or widths_of(base)), home_of(home), on_progress or silent)
    wanted = Wanted(here.sizes, tokens_per_parameter or TOKENS_PER_PARAMETER, seeds=seeds or SEEDS, branches=branches)
    limits = DesignLimits(_SHARE * budget_seconds, here.slots, here.step_seconds, MOST_EPOCHS * here.train_tokens)
    vocabulary = next(iter(here.sizes.values())).model.vocab_size
    changes = (f"model.vocab_size={vocabulary}", *_UNTIMED, *overrides)
    study = _stated(largest_study(wanted, limits), title_of(source), changes, here.step_seconds)
    return ScalingPlan(study, here, wanted, limits, budget_seconds, study_seconds(study, wanted, limits))


def _stated(study: "Isoflop", title: str, overrides: tuple[str, ...], step_seconds: Mapping[int, float]) -> "Isoflop":
    """Return a design with its name, its question, its base, and the times by which branches are predicted to save."""
    return study.model_copy(
        update={
            "name": Path(title).stem,
            "question": "Does a law of the small runs predict the loss of the largest one?",
            "base": _placed(title),
            "overrides": overrides,
            "step_seconds": dict(step_seconds) if study.branches else {},
        }
    )


def run(
    source: Source = None,
    *overrides: str,
    budget_seconds: float,
    widths: Sequence[int] | None = None,
    tokens_per_parameter: float | None = None,
    seeds: int | None = None,
    branches: bool = False,
    executor: str = "local",
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
    on_news: "Callable[[News], None] | None" = None,
) -> "StudyResult":
    """Design a study as `plan` does, and run it as `start` does. Raises `UsageError` as both."""
    place = home_of(home)
    found = plan(
        source,
        *overrides,
        budget_seconds=budget_seconds,
        widths=widths,
        tokens_per_parameter=tokens_per_parameter,
        seeds=seeds,
        branches=branches,
        home=place,
        on_progress=on_progress,
    )
    return start(found, executor=executor, home=place, on_progress=on_progress, on_news=on_news)


def start(
    found: "ScalingPlan",
    *,
    executor: str = "local",
    home: Home | Path | str | None = None,
    on_progress: "Progress | None" = None,
    on_news: "Callable[[News], None] | None" = None,
) -> "StudyResult":
    """Write the file of a planned study into the home, run it, and return its result.

    A Ctrl-C saves and stops, and `assay.study.resume` runs the rest. Raises `UsageError` as `assay.study.run`.
    """
    from assay.api.study import run as run_study

    place = home_of(home)
    return run_study(write(found, place), executor=executor, home=place, on_progress=on_progress, on_news=on_news)


def write(found: "ScalingPlan", home: Home) -> Path:
    """Write the file of a planned study into the home, and return its path. Raises `StorageError`."""
    import yaml

    from assay.files import write_file

    study = found.study
    values = study.model_dump(mode="json", include={"name", "question", "base", "seeds", "count", "check_rate_at"})
    runs = {budget: list(widths) for budget, widths in study.runs.items()}
    branched = {"branches": True, "step_seconds": dict(study.step_seconds)} if study.branches else {}
    content = {
        "kind": study.kind,
        **values,
        "overrides": list(study.overrides),
        "runs": runs,
        "held_out": study.held_out.model_dump(),
        "width_exponent": study.width_exponent,
        "steps_exponent": study.steps_exponent,
        **branched,
    }
    path = home.ready().root / "scaling" / f"{study.name}.yaml"
    path.parent.mkdir(exist_ok=True)
    text = f"# Run it again with `assay study run {path}`.\n" + yaml.safe_dump(content, sort_keys=False)
    write_file(path, text.encode())
    return path


def _placed(title: str) -> str:
    """Return a preset's name, or the absolute path of a file."""
    path = Path(title)
    return str(path.absolute()) if path.is_file() else title


def points(name: str, home: Home | Path | str | None = None) -> "StudyPoints":
    """Return the points of a study: size, tokens, FLOPs and loss of each run that is done.

    `name` is a study's id, the start of one, its name, or last. Raises `UsageError` if it has none.
    """
    from assay.api.scaling_results import StudyPoints
    from assay.api.study import show
    from assay.scaling.scaling_study import points_of

    return StudyPoints(points_of(show(name, home).record))


def answer(name: str, *, draws: int = 200, seed: int = 0, home: Home | Path | str | None = None) -> "ScalingResult":
    """Fit the law of a study, and predict the run that is held out. Raises `UsageError` if too few runs have ended."""
    from assay.api.scaling_results import ScalingResult
    from assay.api.study import show
    from assay.scaling.scaling_study import answer as answered

    found = answered(show(name, home).record, draws, seed)
    return ScalingResult.from_value(found)
