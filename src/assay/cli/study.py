"""`assay study`: plan and run a file or a study of the library; list studies, show, follow, stop and resume one."""

import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from assay.cli.options import AbsentGpu, Json, Overrides, Page, Track, Uses, check_used
from assay.cli.study_output import FailOn, Full, check_fail_on, finish, print_answer, print_predicted, unmet
from assay.errors import UsageError

app = typer.Typer(help="Plan, run, show, stop and resume studies.")

_Name = Annotated[str, typer.Argument(metavar="STUDY", help="A study: its id, the start of one, or last.")]
_Hours = Annotated[
    float | None,
    typer.Option(metavar="HOURS", help="Begin nothing that would probably end later; resume does the rest."),
]
_Mode = Annotated[str, typer.Option(metavar="MODE", help="missing, retry-failed, force or read-only.")]
_Source = Annotated[
    str, typer.Argument(metavar="STUDY|FILE", help="A study of the library by its name, or a YAML file.")
]
_Scale = Annotated[str | None, typer.Option(metavar="NAME", help="A scale of the study, such as small; default: full.")]


_Executor = Annotated[
    str | None,
    typer.Option("--executor", metavar="NAME", help="Where the waves run: local, ray, slurm; default: local."),
]
_RUN_USES = {
    "": ("--executor", "--max-hours", "--loss-only", "--track", "--fail-on"),
    "--predicted": ("--device",),
}
"""Options of `run` by what it does: measure, or predict."""
_PLAN_USES = {"": ("--calibrate", "--cells", "--loss-only"), "--predicted": ("--device",)}
"""Options of `plan` by where its rows run: here, or on an absent GPU."""


@app.command("new")
def new_study(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the study; its file is NAME.yaml.")],
    kind: Annotated[str, typer.Option(metavar="KIND", help="Kind of the study.")] = "factorial",
) -> None:
    """Write a commented file of a study into the working directory, to be edited and run."""
    from assay.api.designs import new
    from assay.cli.console import note

    path = new(name, kind)
    word = shlex.quote(str(path))
    note(f"edit {path}, then `assay study plan {word}` and `assay study run {word}`")
    typer.echo(str(path))


@app.command("plan")
def plan_study(
    source: _Source,
    overrides: Overrides = None,
    scale: _Scale = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="First time steps of few blocks, for at most a minute.")
    ] = False,
    cells: Annotated[bool, typer.Option("--cells", help="Also list every run: each row at each seed.")] = False,
    loss_only: Annotated[
        bool, typer.Option("--loss-only", help="Plan it as `run --loss-only` runs it: without times, a seed once.")
    ] = False,
    predicted: Annotated[
        bool, typer.Option("--predicted", help="Predict every row on --device, as `run --predicted` does.")
    ] = False,
    device: AbsentGpu = None,
    as_json: Json = False,
) -> None:
    """List every row of a study with its predicted memory and time, and rows that cannot run with the reason.

    The study is not trained. Times need --calibrate, or the rates that `assay machine` measures. With --predicted the
    rows are those of a GPU that may be absent: `assay study plan gpu-twenty-four --predicted --device a100-40gb`.
    """
    from functools import partial

    from assay.api.designs import plan
    from assay.cli.console import print_view
    from assay.report.comparison.progress import watcher
    from assay.report.studies import OutlookView

    options = {"--calibrate": calibrate, "--cells": cells, "--loss-only": loss_only, "--device": device}
    if gpu := _gpu(predicted, device, _PLAN_USES, options):
        _print_predicted(source, overrides, scale, gpu, None, as_json)
        return
    with watcher() as watch, _naming_a_file("plan", source, scale, overrides):
        asked = partial(plan, source, *(overrides or ()), scale=scale, calibrate=calibrate, loss_only=loss_only)
        found = asked(on_progress=watch.prepare)
    print_view(OutlookView(found, cells=cells), as_json)


@app.command("run")
def run_study(
    source: _Source,
    overrides: Overrides = None,
    scale: _Scale = None,
    predicted: Annotated[
        bool, typer.Option("--predicted", help="Train nothing: predict every row on --device, with deviations.")
    ] = False,
    device: AbsentGpu = None,
    executor: _Executor = None,
    max_hours: _Hours = None,
    loss_only: Annotated[
        bool, typer.Option("--loss-only", help="Measure no times and no heap, and run several beside each other.")
    ] = False,
    page: Page = None,
    track: Track = None,
    full: Full = False,
    fail_on: FailOn = None,
    as_json: Json = False,
) -> None:
    """Run a study, and print the answer.

    \b
        kind: factorial
        question: Does Lion need another learning rate?
        base: demo
        seeds: 3
        vary:
          training.learning_rate: [1e-3, 3e-4]
          optimizations: [none, lion]

    The first level of each factor is that of the control. Settings after the name change the base of all rows:
    `assay study run cpu-fifteen --scale small data.path=input.txt`. Exit codes are those of `assay compare`, and 5
    with --fail-on if an expectation is refuted.

    With --predicted nothing is trained: every row is predicted on a GPU that may be absent, as `assay compare --device`
    does: `assay study run gpu-twenty-four --predicted --device a100-40gb`.
    """
    from functools import partial

    from assay.api.study import run

    options = {
        "--executor": executor, "--max-hours": max_hours, "--loss-only": loss_only, "--track": track,
        "--fail-on": fail_on, "--device": device,
    }  # fmt: skip
    if gpu := _gpu(predicted, device, _RUN_USES, options):
        _print_predicted(source, overrides, scale, gpu, page, as_json)
        return
    asked = partial(run, source, *(overrides or ()), scale=scale, executor=executor or "local")
    with _naming_a_file("run", source, scale, overrides):
        finish(partial(asked, max_hours=max_hours, loss_only=loss_only), page, as_json, track, fail_on, full)


@contextmanager
def _naming_a_file(verb: str, source: str, scale: str | None, overrides: list[str] | None) -> Iterator[None]:
    """Name the command with a local file if the text of a published study is not here and cannot be downloaded."""
    from assay.data.published import NotDownloaded

    try:
        yield
    except NotDownloaded as error:
        scaled = [] if scale is None else ["--scale", scale]
        command = shlex.join(["assay", "study", verb, source, *scaled, *(overrides or ()), "data.path=FILE"])
        raise UsageError(f"the text {error.url} could not be downloaded; give a local file: `{command}`") from error


def _gpu(predicted: bool, device: str | None, uses: Uses, options: Mapping[str, object]) -> str | None:
    """Return the GPU on which rows are predicted; None if they are not. Raises `UsageError` for options beside it."""
    check_used("--predicted" if predicted else "", uses, options)
    if predicted and device is None:
        raise UsageError("--predicted needs a GPU; name one, as in --predicted --device a100-40gb")
    return device


def _print_predicted(
    source: str, overrides: list[str] | None, scale: str | None, device: str, page: Path | None, as_json: bool
) -> None:
    """Predict every row on a GPU, and print the answer."""
    from functools import partial

    from assay.api.study import predict

    print_predicted(partial(predict, source, *(overrides or ()), scale=scale, device=device), page, as_json)


@app.command("library")
def show_library(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A study of the library; default: the list of all.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the published studies that can be run by name, or show one: its table, its faults and its scales."""
    from assay.api.designs import library, published_study
    from assay.cli.console import print_view
    from assay.report.studies import LibraryView

    print_view(LibraryView(library()) if name is None else published_study(name), as_json)


@app.command("resume")
def resume_study(
    study: _Name,
    mode: _Mode = "missing",
    max_hours: _Hours = None,
    page: Page = None,
    track: Track = None,
    full: Full = False,
    fail_on: FailOn = None,
    as_json: Json = False,
) -> None:
    """Go on with a stopped study: only the runs without a result.

    A run that was made with another torch, package or processor has none. With --mode retry-failed, runs that failed,
    were killed or timed out run again, and with --mode force all do. Running out of memory and diverging are results.
    """
    from functools import partial

    from assay.api.study import resume

    finish(partial(resume, study, mode=mode, max_hours=max_hours), page, as_json, track, fail_on, full)


@app.command("status")
def study_status(study: _Name, as_json: Json = False) -> None:
    """Show how far a study has come: its runs by status, its process, and what failed."""
    from assay.api.study import status
    from assay.cli.console import print_view

    print_view(status(study), as_json)


@app.command("stop")
def stop_study(study: _Name) -> None:
    """Let the process of a running study save and stop; `assay study resume` runs the rest."""
    from assay.api.study import stop
    from assay.cli.console import note

    found = stop(study)
    note(f"the study {found.id} is {found.status}, {found.ended} of {found.cells} runs have ended")


@app.command("ls")
def list_studies(as_json: Json = False) -> None:
    """List studies, newest first."""
    from assay.api.study import ls
    from assay.cli.console import note, print_json, print_table
    from assay.config import Home

    home = Home().checked()
    found = ls(home)
    if as_json:
        print_json([one._asdict() for one in found])
    elif found:
        columns = ("study", "name", "kind", "base", "status", "runs", "question")
        rows = [
            (one.id, one.name, one.kind, one.title, one.status, f"{one.ended} of {one.cells}", one.question)
            for one in found
        ]
        print_table(columns, rows, right=("runs",), spare=("question", "base", "kind"))
    else:
        note(f"no studies in {home.reports} yet; `assay compare` or `assay study run` makes one")


@app.command("show")
def show_study(study: _Name, full: Full = False, fail_on: FailOn = None, as_json: Json = False) -> None:
    """Print the answer of a study and its small table, with the runs that have ended, and the path of its page."""
    from assay.api.study import show
    from assay.config import Home
    from assay.report import view
    from assay.studies.folder import StudyFolder

    check_fail_on(fail_on)
    found = show(study)
    page = StudyFolder(Home().reports / found.record.id).page_file
    written = page.exists()
    print_answer(view(found), page if written else None, as_json, full)
    if not written and not as_json:
        typer.echo(f"assay study report {found.record.id}    writes its page")
    raise typer.Exit(unmet(found, fail_on))


@app.command("machines")
def compare_machines(
    studies: Annotated[list[str], typer.Argument(metavar="STUDY…", help="The same study, once from each machine.")],
    as_json: Json = False,
) -> None:
    """Compare the changes of one study that ran on several machines, each against its own control.

    `assay runs import` brings the records of another machine here.
    """
    from assay.api.study import machines
    from assay.cli.console import print_view

    print_view(machines(*studies), as_json)


@app.command("report")
def report_study(
    study: _Name,
    page: Page = None,
    form: Annotated[
        str,
        typer.Option("--format", help="page, or a report to hand in: md, html, or pdf by a Chromium that is found."),
    ] = "page",
) -> None:
    """Write the page of a study anew, or a report of it to hand in.

    A report has question, answer, method, table, two figures, what was wrong in the original, and limits. Its figures
    stand beside it as PNG and SVG.
    """
    from assay.api.study import show
    from assay.config import Home
    from assay.report.kit.view import write_page
    from assay.report.study.handout import FORMATS, write_handout
    from assay.report.study.view import StudyView

    found, home = show(study), Home()
    if form == "page":
        typer.echo(str(write_page(found, home, page)))
    elif form in FORMATS:
        path = page or home.reports / found.record.id / f"report.{form}"
        typer.echo(str(write_handout(StudyView(found), path, form)))
    else:
        raise UsageError(f"--format {form} is not possible; it takes page, {', '.join(FORMATS)}")


@app.command("follow")
def follow_study(study: _Name) -> None:
    """Show the progress of a study that another process runs, until it ends."""
    from assay.api.study import follow, listing_of
    from assay.cli.console import note
    from assay.report.comparison.progress import watcher

    with watcher() as watch:
        for news in follow(study):
            watch(news)
    found = listing_of(study)
    hint = "" if found.status in ("complete", "running") else f"; `assay study resume {found.id}` runs the rest"
    note(f"the study {found.id} is {found.status}, {found.ended} of {found.cells} runs have ended{hint}")
