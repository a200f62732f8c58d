"""`assay runs`: list runs, show one, compare two, and delete some."""

from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import Json, RunName

if TYPE_CHECKING:
    from assay.config import Home
    from assay.records.run import RunResult
    from assay.store.entry import Entry

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
    from assay.cli.console import note, print_json, print_table
    from assay.config import Home
    from assay.report.runs import COLUMNS, FIGURES, SPARE, brief, known_status, row

    home = Home().checked()
    every = _entries(home)
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
    from assay.cli.console import plain, print_blocks, print_json
    from assay.config import Home
    from assay.report.run import run_report

    home = Home().checked()
    result = _result(home, run)
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
    from assay.cli.console import print_json, print_table
    from assay.config import Home
    from assay.report.difference import changed, configurations, environments, figures

    home = Home().checked()
    a, b = _result(home, first), _result(home, second)
    parts = {"config": configurations(a, b), "environment": environments(a, b), "figures": figures(a, b)}
    if as_json:
        print_json({"runs": [a.run, b.run], **parts})
        return
    for name in ("config", "environment"):
        if parts[name]:
            print_table((name, a.run, b.run), [(key, *pair) for key, pair in parts[name].items()])
        else:
            typer.echo(f"{name}: the same")
    print_table(("figures", a.run, b.run, "change"), changed(parts["figures"]), right=(a.run, b.run, "change"))


@app.command("rm")
def remove_runs(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs to delete, with all their files.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without a question.")] = False,
    as_json: Json = False,
) -> None:
    """Delete runs: checkpoints, events, results and their rows in the store. A run that is still running is refused."""
    import sys

    from assay.cli.console import note, print_json
    from assay.config import Home
    from assay.errors import UsageError
    from assay.store.index import Store
    from assay.store.liveness import is_running
    from assay.store.lookup import find

    home = Home().checked()
    folders = list({folder.id: folder for folder in (find(home, name) for name in runs)}.values())
    for folder in folders:
        folder.check_removable()
        if is_running(folder):
            raise UsageError(f"the run {folder.id} is still running; stop it before you remove it")
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("standard input is not a terminal to confirm on; give --yes to delete without a question")
        for folder in folders:
            note(str(folder.path))
        typer.confirm(f"Delete {len(folders)} of the runs in {home.runs}?", abort=True, err=True)
    store = Store(home)
    for folder in folders:
        folder.remove()
        store.remove([folder.id])
    if as_json:
        print_json({"removed": [folder.id for folder in folders]})
    else:
        note("removed " + ", ".join(folder.id for folder in folders))


def _entries(home: "Home") -> list["Entry"]:
    """Return the current entry of every run, newest first, and print a note on runs that cannot be read."""
    from assay.cli.console import note
    from assay.store.index import Store
    from assay.store.listing import reconcile

    if not home.runs.is_dir():
        return []
    listing = reconcile(home, Store(home))
    for complaint in listing.notes:
        note(f"assay: {complaint}")
    return listing.entries


def _result(home: "Home", name: str) -> "RunResult":
    from assay.store.lookup import find
    from assay.store.reconcile import settle

    return settle(find(home, name))
