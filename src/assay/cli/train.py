"""`assay train`: one run, measured, with its predictions and proofs."""

from typing import Annotated

import typer


def train(
    source: Annotated[
        str | None,
        typer.Argument(metavar="[PRESET|FILE]", help="A preset or a YAML file; left out: the preset demo."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="What to change in it, for instance model.n_layer=8."),
    ] = None,
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="NAME[:FIELD=VALUE,...][+NAME...]",
            help="Turn optimizations on; several --with add up.",
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Go on with a stopped run: its id, the start of one, or last."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Stop the run, resumably, when it takes longer."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON value.")] = False,
) -> None:
    """Train one model, measure it, and prove its optimizations.

    The run is a process of its own; what it does, reaches and takes is kept in a folder and in the store.

    \b
    assay train                                            the preset demo
    assay train shakespeare-char-cpu data.path=input.txt   a preset on a text of yours
    assay train my.yaml training.steps=500 seed=1          a file, with changes
    assay train demo --with sdpa_attention+bf16_mixed      with two optimizations
    assay train demo --with activation_checkpointing:every=2
    assay train --resume last training.steps=200           go on with the last run

    Ctrl-C stops after the current step and saves; --resume goes on from there.

    Exit codes: 0 done, 2 wrong input, 3 out of memory, diverged, timed out, killed or an optimization without effect,
    1 failed, 4 budget reached, 130 interrupted.
    """
    from assay import api
    from assay.cli.console import plain, print_json
    from assay.cli.progress import watcher
    from assay.cli.summary import print_run
    from assay.config import Home

    home = Home()
    _stop_in_order()
    with watcher() as watch:
        result = api.train(
            source,
            *(overrides or ()),
            optimizations=with_ or (),
            resume=resume,
            home=home,
            timeout=timeout,
            on_event=watch,
        )
    if as_json:
        print_json(plain(result))
    else:
        print_run(result, home)
    raise typer.Exit(result.status.exit_code)


def _stop_in_order() -> None:
    """Take the signal with which schedulers end a job as they would take a Ctrl-C: save, then stop."""
    import signal

    signal.signal(signal.SIGTERM, signal.default_int_handler)
