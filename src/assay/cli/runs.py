"""`assay runs`: list runs, show one, compare two, and delete some."""

from typing import Annotated

import typer

from assay.cli.options import Json, RunName

app = typer.Typer(help="List, show, compare and remove runs.")


@app.command("ls")
def list_runs(
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Show only the newest N runs.")] = None,
    status: Annotated[
        str | None, typer.Option(metavar="STATUS", help="Show only runs with this status: done, killed, …")
    ] = None,
    preset: Annotated[str | None, typer.Option(metavar="NAME", help="Show only runs of this preset or file.")] = None,
    as_json: Json = False,
) -> None:
    """List runs, newest first, with a status that is checked against their processes.

    \b
        assay runs ls --limit 20
        assay runs ls --status done --preset shakespeare-char-cpu
    """
    from assay.api import runs
    from assay.cli.console import note, print_json, print_table
    from assay.config import Home
    from assay.report.runs import COLUMNS, FIGURES, SPARE, brief, known_status, row

    home = Home()
    every, complaints = runs.listing(home)
    for complaint in complaints:
        note(f"assay: {complaint}")
    wanted = None if status is None else known_status(status, every)
    chosen = [one for one in every if wanted in (None, one.status) and preset in (None, one.preset)][:limit]
    if as_json:
        print_json([brief(one) for one in chosen])
    elif chosen:
        print_table(COLUMNS, map(row, chosen), right=FIGURES, spare=SPARE)
    elif every:
        note(f"none of the {len(every)} runs in {home.runs} matches the options")
    else:
        note(f"there are no runs in {home.runs} yet; `assay train` starts one")


@app.command("show")
def show_run(run: RunName, as_json: Json = False) -> None:
    """Show the whole record of a run."""
    from assay.api import runs
    from assay.cli.console import plain, print_blocks, print_json
    from assay.config import Home
    from assay.report.run import run_report

    home = Home().checked()
    result = runs.show(run, home)
    if as_json:
        print_json(plain(result))
    else:
        print_blocks(run_report(result, home, whole=True))


@app.command("diff")
def compare_runs(
    first: Annotated[str, typer.Argument(metavar="A", help="Id or name of a run, the start of either, or last.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The run to compare with A.")],
    as_json: Json = False,
) -> None:
    """Show the differences between two runs: configuration, environment, figures."""
    from assay.api import runs
    from assay.cli.console import print_json, print_table
    from assay.config import Home
    from assay.report.difference import changed
    from assay.store.lookup import find

    home = Home().checked()
    ids = (find(home, first).id, find(home, second).id)
    parts = runs.diff(*ids, home)
    if as_json:
        print_json({"runs": ids, **parts})
        return
    for name in ("config", "environment"):
        if parts[name]:
            print_table((name, *ids), [(key, *pair) for key, pair in parts[name].items()])
        else:
            typer.echo(f"{name}: the same")
    print_table(("figures", *ids, "change"), changed(parts["figures"]), right=(*ids, "change"))


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
