"""`assay runs`: what has been run, one run whole, two runs side by side, and taking runs away."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.options import Json, RunName

if TYPE_CHECKING:
    from assay.config import Home
    from assay.runs.record import RunResult

app = typer.Typer(help="List, show, compare and remove runs.")

_SPARE = ("created", "model", "process peak", "tokens/s", "steps")
"""What the list leaves out first on a narrow terminal; an id begins with the time of its creation."""


@app.command("ls")
def list_runs(as_json: Json = False) -> None:
    """List every run, newest first, with its state as its process shows it."""
    from assay.cli.console import note, print_json, print_table
    from assay.cli.summary import UNKNOWN, amount, figure, model_summary, stack_summary
    from assay.config import Home
    from assay.units import format_count

    home = Home().checked()
    results = _results(home)
    if as_json:
        print_json([_brief(result) for result in results])
        return
    if not results:
        note(f"no runs in {home.runs} yet; `assay train` makes one")
        return
    figures = ("steps", "val loss", "tokens/s", "tensors peak", "process peak")
    rows = [
        (
            result.run,
            result.status.value,
            result.created[:19].replace("T", " "),
            model_summary(result.config),
            stack_summary(result.config),
            str(result.steps),
            figure(result.val_loss),
            UNKNOWN if result.tokens_per_second is None else format_count(result.tokens_per_second),
            amount(result.memory.tensors_peak_bytes),
            amount(result.memory.process_peak_bytes),
        )
        for result in results
    ]
    print_table(("run", "status", "created", "model", "with", *figures), rows, right=figures, spare=_SPARE)


@app.command("show")
def show_run(run: RunName, as_json: Json = False) -> None:
    """Show everything that is known of a run."""
    from assay.cli.console import plain, print_json
    from assay.cli.summary import print_run
    from assay.config import Home

    home = Home().checked()
    result = _result(home, run)
    if as_json:
        print_json(plain(result))
    else:
        print_run(result, home, whole=True)


@app.command("diff")
def compare_runs(
    first: Annotated[str, typer.Argument(metavar="A", help="A run: an id, the start of one, or last.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The run to hold against it.")],
    as_json: Json = False,
) -> None:
    """Show where two runs differ: configuration, environment, figures."""
    from assay.cli.console import print_json, print_table
    from assay.cli.difference import changed, configurations, environments, figures
    from assay.config import Home

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
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Runs to delete with all that they hold.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Delete runs: checkpoints, events, results and their rows. A running one is refused."""
    import sys

    from assay.cli.console import note, print_json
    from assay.config import Home
    from assay.errors import UsageError
    from assay.runs.alive import is_running
    from assay.runs.lookup import find
    from assay.runs.store import Store

    home = Home().checked()
    folders = list({folder.id: folder for folder in (find(home, name) for name in runs)}.values())
    for folder in folders:
        folder.check_removable()
        if is_running(folder):
            raise UsageError(f"the run {folder.id} is still running; stop it before you remove it")
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("there is nobody to ask; give --yes to remove without a question")
        for folder in folders:
            note(str(folder.path))
        typer.confirm(f"Delete {len(folders)} of the runs in {home.runs}?", abort=True, err=True)
    store = Store(home)
    for folder in folders:
        folder.remove()
        store.remove(folder.id)
    if as_json:
        print_json({"removed": [folder.id for folder in folders]})
    else:
        note("removed " + ", ".join(folder.id for folder in folders))


def _results(home: "Home") -> list["RunResult"]:
    """Every run as it is now, newest first; what cannot be read is noted."""
    from assay.cli.console import note
    from assay.runs.recover import reconcile
    from assay.runs.store import Store

    if not home.runs.is_dir():
        return []
    store = Store(home)
    for complaint in reconcile(home, store):
        note(f"assay: {complaint}")
    return store.results()


def _result(home: "Home", name: str) -> "RunResult":
    from assay.runs.lookup import find
    from assay.runs.recover import settle

    return settle(find(home, name))


def _brief(result: "RunResult") -> dict[str, Any]:
    from assay.cli.console import plain

    whole = plain(result)
    names = ("run", "status", "reason", "created", "identity", "steps", "tokens", "train_loss", "val_loss")
    return {
        **{name: whole[name] for name in (*names, "tokens_per_second")},
        "optimizations": [str(spec) for spec in result.config.optimizations],
        "tensors_peak_bytes": result.memory.tensors_peak_bytes,
        "process_peak_bytes": result.memory.process_peak_bytes,
    }
