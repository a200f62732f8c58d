"""`assay train`: one run, measured, with its predictions and proofs."""

from typing import Annotated

import typer

from assay.cli.options import Json, Nproc, Overrides, Oversubscribe, Source, With, changes

_Resume = Annotated[
    str | None, typer.Option(metavar="RUN", help="Go on with a stopped run: its id or name, the start of one, or last.")
]
_Name = Annotated[str | None, typer.Option(metavar="NAME", help="Call the run so; it can be named wherever an id can.")]
_Timeout = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Stop the run, resumably, when it takes longer.")
]


def train(
    source: Source = None,
    overrides: Overrides = None,
    with_: With = None,
    nproc: Nproc = None,
    oversubscribe: Oversubscribe = False,
    resume: _Resume = None,
    name: _Name = None,
    timeout: _Timeout = None,
    as_json: Json = False,
) -> None:
    """Train one model, measure it, and prove its optimizations.

    The run is a process of its own; what it does, reaches and takes is kept in a folder and in the store.

    \b
    assay train                                            the preset demo
    assay train shakespeare-char-cpu data.path=input.txt   a preset on a text of yours
    assay train demo --with sdpa_attention+bf16_mixed      with two optimizations
    assay train my.yaml model.init_from=my-gpt2            from the weights of a GPT-2 folder, an export or a run
    assay train demo --nproc 2 --with data_parallel        on two processes of this machine
    assay train --resume last training.steps=200           go on with the last run
    assay train --resume last --nproc 1                    the same, on one process
    assay train --resume last --nproc 2 --with tensor_parallel

    With model.init_from, fields of the model that nobody sets take that model's values; others are listed first.
    With --resume, --with takes techniques that divide the run among processes, in place of those it had.
    Ctrl-C stops after the current step and saves; --resume goes on from there.

    Exit codes: 0 done; 1 failed; 2 wrong input; 3 out of memory, diverged, timed out, killed, or an optimization
    took no effect or computed wrong values; 4 budget reached; 130 interrupted. Workers under a torchrun of yours end
    so, too, and say why; where it is not 0, torchrun itself adds a traceback, and ends with 1 whichever it was.
    """
    from assay import api
    from assay.cli.console import plain, print_json
    from assay.cli.progress import watcher
    from assay.cli.summary import print_run
    from assay.config import Home

    home = Home()
    with watcher() as watch:
        said, stack = changes(overrides, nproc, oversubscribe), with_ or ()
        result = api.train(
            source, *said, optimizations=stack, resume=resume, name=name, home=home, timeout=timeout, on_event=watch
        )
    if as_json:
        print_json(plain(result))
    else:
        print_run(result, home)
    raise typer.Exit(result.status.exit_code)
