"""`assay runs`: list runs, show one, compare two, delete some, and carry them to another home."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.options import Json, RunName
from assay.records.status import Exit

_NAMED = 5
"""Most files that an import names one by one."""

app = typer.Typer(help="List, show, compare, remove and export runs.")


@app.command("ls")
def list_runs(
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Show only the newest N runs.")] = None,
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="Show only runs with this status: done, killed, …")
    ] = None,
    preset: Annotated[str | None, typer.Option(metavar="NAME", help="Show only runs of this preset or file.")] = None,
    cells: Annotated[bool, typer.Option("--cells", help="Show each run of a study, in place of one line.")] = False,
    as_json: Json = False,
) -> None:
    """List runs, newest first, with a status that is checked against their processes.

    Runs of a study are one line with its id; `assay study show ID` has its answer. With --json each cell is listed and
    names its study. Letters mark losses of unlike evaluations. A status with "disturbed 2/5" says that other programs
    took processor time in two of five timed blocks. A stack with "nudged" began from weights that differ in their last
    digit, to show how far rounding moves a loss.

    \b
        assay runs ls --limit 20
        assay runs ls --status done --preset shakespeare-char-cpu
    """
    from assay.api import runs
    from assay.cli.console import note, print_view
    from assay.config import Home
    from assay.report.runs import UNLIKE, RunsView, known_status
    from assay.store.cells import fold_cells, studies_by_run

    home = Home()
    every, complaints = runs.listing(home)
    for complaint in complaints:
        note(f"assay: {complaint}")
    wanted = None if status is None else known_status(status, every)
    chosen = [one for one in every if wanted in (None, one.status) and preset in (None, one.preset)]
    studies = studies_by_run(home)
    if chosen or as_json:
        lines = chosen if cells or as_json else fold_cells(chosen, studies)
        shown = RunsView(lines[:limit], studies)
        print_view(shown, as_json)
        if not as_json and shown.marks:
            note(UNLIKE)
    elif every:
        note(f"none of the {len(every)} runs in {home.runs} matches the options")
    else:
        note(f"there are no runs in {home.runs} yet; `assay train` starts one")


@app.command("show")
def show_run(run: RunName, as_json: Json = False) -> None:
    """Show the whole record of a run."""
    from assay.api import runs
    from assay.cli.console import print_view
    from assay.config import Home
    from assay.report.run import RunView

    home = Home().checked()
    print_view(RunView(runs.show(run, home), home, whole=True), as_json)


@app.command("diff")
def compare_runs(
    first: Annotated[str, typer.Argument(metavar="A", help="Id or name of a run, the start of either, or last.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The run to compare with A.")],
    as_json: Json = False,
) -> None:
    """Show the differences between two runs: configuration, environment, figures."""
    from assay.api import runs
    from assay.cli.console import print_view
    from assay.config import Home
    from assay.report.runs import RunDifferencesView
    from assay.store.lookup import find

    home = Home().checked()
    ids = (find(home, first).id, find(home, second).id)
    print_view(RunDifferencesView(runs.diff(*ids, home), ids), as_json)


@app.command("rm")
def remove_runs(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs to delete, with all their files.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without a question.")] = False,
    as_json: Json = False,
) -> None:
    """Delete runs: checkpoints, events, results and their rows in the store. A run that is still running is refused."""
    import sys

    from assay.api.runs import removable, rm
    from assay.cli.console import note, print_json
    from assay.config import Home
    from assay.errors import UsageError

    home = Home().checked()
    folders = removable(runs, home=home)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("standard input is not a terminal to confirm on; give --yes to delete without a question")
        for folder in folders:
            note(str(folder.path))
        typer.confirm(f"Delete {len(folders)} of the runs in {home.runs}?", abort=True, err=True)
    removed = rm([folder.id for folder in folders], home=home)
    if as_json:
        print_json({"removed": removed})
    else:
        note("removed " + ", ".join(removed))


@app.command("export")
def export_runs(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Archive to write: .tar.gz, or .tar.xz, which is smaller.")
    ],
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="Runs to include; without any, the whole home.")
    ] = None,
    study: Annotated[
        list[str] | None, typer.Option(metavar="STUDY", help="Include a study with all its runs; may be repeated.")
    ] = None,
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Include the checkpoints, which are large.")
    ] = False,
    without_runs: Annotated[
        bool,
        typer.Option(
            "--without-runs", help="Of each --study take the record alone: its answer and page, not its runs."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Write runs, and studies with their runs, into one file for another home or machine.

    \b
        assay runs export all.tar.gz
        assay runs export fifteen.tar.gz --study cpu-fifteen
        assay runs export answer.tar.xz --study last --without-runs
    """
    from assay.api.runs import export_archive
    from assay.cli.console import note, print_json

    found = export_archive(
        file, runs or (), studies=study or (), checkpoints=checkpoints, without_runs=without_runs, on_note=note
    )
    if as_json:
        print_json({"file": str(file), "folders": found})
    else:
        note(f"{file} has {_counted(found)}; `assay runs import {file}` brings them into another home")


@app.command("import")
def import_runs(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Archive that `assay runs export` wrote.")],
    as_json: Json = False,
) -> None:
    """Bring the runs and studies of an archive into this home. Those that it has already stay as they are.

    Only files of known names are taken, and none of them is code. A record may name code of a model's own: before it
    runs, you are asked.
    """
    from assay.api.runs import import_archive
    from assay.cli.console import note, print_json

    brought = import_archive(file)
    if as_json:
        print_json({"new": brought.new, "known": brought.known, "left": brought.left})
    else:
        for name in brought.left[:_NAMED]:
            note(f"left out {name}, which is no file of a run or study")
        if more := brought.left[_NAMED:]:
            note(f"left out {len(more)} more files")
        note(f"{_counted(brought.new)} new" + (f", {_counted(brought.known)} here already" if brought.known else ""))


@app.command("track")
def track_runs(
    record: Annotated[str, typer.Argument(metavar="RUN|STUDY", help="A run or a study: its id or name, or last.")],
    to: Annotated[str, typer.Option("--to", metavar="NAME", help="tensorboard, mlflow, wandb or trackio.")],
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of the copies; default: tracked/NAME in the home.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Copy a run, or all runs of a study, for another program. Nothing is sent away.

    A run that was copied before is replaced. The last line is the command that shows the copies.

    \b
        assay runs track last --to tensorboard
        assay runs track cpu-fifteen --to mlflow
    """
    from assay.api.runs import track
    from assay.cli.console import note, print_json

    done = track(record, to=to, folder=folder)
    if as_json:
        print_json(done._asdict())
    else:
        note(f"{len(done.runs)} run{'' if len(done.runs) == 1 else 's'} copied to {done.folder}")
    if done.failure is not None:
        note(f"assay: {to} got no further copy ({done.failure})")
        raise typer.Exit(Exit.FAULT)
    if not as_json and done.look is not None:
        typer.echo(done.look)


def _counted(folders: list[str]) -> str:
    """Return the numbers of runs and studies among folders of a home."""
    studies = sum(one.startswith("reports/") for one in folders)
    runs = len(folders) - studies
    return f"{runs} run{'' if runs == 1 else 's'} and {studies} stud{'y' if studies == 1 else 'ies'}"
