"""`assay train`: train one run and measure it, with its predictions and proofs."""

from typing import Annotated

import typer

from assay.cli.options import (
    Json,
    Nproc,
    Overrides,
    Oversubscribe,
    Source,
    Track,
    With,
    changes,
    copying,
    show_how_to_look,
)

_Resume = Annotated[
    str | None,
    typer.Option(metavar="RUN", help="Continue a stopped run: its id or name, the start of either, or last."),
]
_Branch = Annotated[
    str | None,
    typer.Option(metavar="RUN@STEP", help="Begin a new run with that checkpoint, and let its learning rate fall."),
]
_Name = Annotated[str | None, typer.Option(metavar="NAME", help="Name of the run; it is accepted wherever an id is.")]
_Timeout = Annotated[float | None, typer.Option(metavar="SECONDS", help="Stop the run, resumably, after this time.")]


def train(
    source: Source = None,
    overrides: Overrides = None,
    with_: With = None,
    nproc: Nproc = None,
    oversubscribe: Oversubscribe = False,
    resume: _Resume = None,
    branch: _Branch = None,
    name: _Name = None,
    timeout: _Timeout = None,
    track: Track = None,
    as_json: Json = False,
) -> None:
    """Train one model, and prove its optimizations.

    The run is a separate process. Its events, results and measurements are kept in a folder and in the store.

    \b
        assay train                                            the preset demo
        assay train shakespeare-char-cpu data.path=input.txt   a preset on your own text
        assay train demo --with sdpa_attention+bf16_mixed      with two optimizations
        assay train my.yaml model.init_from=my-model           from a folder of Hugging Face, an export or a run
        assay train demo --nproc 2 --with data_parallel        on two processes of this machine
        assay train --resume last training.steps=200           continue the last run
        assay train --resume last --nproc 1                    continue it on one process
        assay train --resume last --nproc 2 --with tensor_parallel
        assay train demo training.schedule=constant training.keep_steps=[80]
        assay train --branch last@80                           100 steps, of which the last 20 decay

    With model.init_from, model fields that are not set take that model's values. If fields that are set differ, they
    are listed and nothing runs. With --resume, --with names techniques that divide the run among processes, in place
    of its former ones. Ctrl-C stops after the current step and saves; --resume continues from there.

    Exit codes: 0 done; 1 failed; 2 wrong input; 3 out of memory, diverged, timed out, killed, or an optimization took
    no effect or computed wrong values; 4 budget reached; 130 interrupted. Workers under your own torchrun exit with the
    same codes and print the reason. If a code is not 0, torchrun itself adds a traceback and exits with 1.
    """
    from functools import partial

    from assay import api
    from assay.cli.console import print_view
    from assay.cli.progress import watcher
    from assay.config import Home

    home = Home()
    with copying(track, home) as copies, watcher() as watch:
        ask = partial(api.train, source, *changes(overrides, nproc, oversubscribe), optimizations=with_ or ())
        result = ask(resume=resume, branch=branch, name=name, home=home, timeout=timeout, on_event=copies.after(watch))
    print_view(result, as_json)
    show_how_to_look(copies)
    raise typer.Exit(result.status.exit_code)
