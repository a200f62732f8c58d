"""`assay measure`: one training step of a user's own, in a process of its own."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.options import Json, arguments, check_used, given_options, only_one

_Step = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:FUNCTION", help="A function that returns your training step, itself a function: file.py:build."
    ),
]
_Tokens = Annotated[int | None, typer.Option(min=1, metavar="N", help="Tokens of one step, for tokens per second.")]
_Blocks = Annotated[int, typer.Option(min=1, metavar="N", help="Timed blocks.")]
_Figure = Annotated[
    Path | None,
    typer.Option("--figure", metavar="FILE.png|.svg", help="Also draw a figure into this file.", show_default=False),
]


_Against = Annotated[
    str | None,
    typer.Option("--against", metavar="MODULE:FUNCTION", help="A baseline whose values the step must have."),
]
_Numerics = Annotated[
    str | None,
    typer.Option(
        "--numerics",
        metavar="KIND",
        help="With --against: how near its values must be: exact, reassociated or lossy; default: reassociated.",
    ),
]
_Device = Annotated[
    str | None,
    typer.Option("--device", metavar="NAME", help="A GPU that is not there: predict the peak memory of a step on it."),
]
_USES = {"": ("--tokens", "--figure"), "--against": ("--numerics", "--tokens", "--figure"), "--device": ()}


def measure(
    step: _Step,
    tokens: _Tokens = None,
    blocks: _Blocks = 5,
    against: _Against = None,
    numerics: _Numerics = None,
    figure: _Figure = None,
    device: _Device = None,
    as_json: Json = False,
) -> None:
    """Measure a training step of your own.

    Memory is listed by part, and work by operator and module. The function is called once, in a process of its own,
    and returns a function without arguments that trains once: batch, forward, backward, update. A file or module is
    found from the working directory.

    \b
        assay measure train.py:build --tokens 768
        assay measure fast.py:build --against train.py:build
        assay measure train.py:build --device h100

    Exit codes: 0 done; 2 wrong input; 3 the step computes other values than its baseline, or does not differ from it;
    5 its values could not be compared, so nothing is proven.
    """
    from assay import api
    from assay.cli.console import note, print_view
    from assay.report.anatomy import drawable
    from assay.report.kit.drawing import save

    near = {"--numerics": numerics}
    modes = {"--against": against, "--device": device}
    check_used(only_one(given_options(modes)), _USES, near | {"--tokens": tokens, "--figure": figure})
    if device is not None:
        note(f"the step is not measured: its peak on an absent {device} is predicted")
        print_view(api.gpu_peak(step, device=device, on_progress=note), as_json)
        return
    if figure is not None:
        drawable(figure)
    found = api.measure(step, tokens=tokens, blocks=blocks, against=against, **arguments(near, "--numerics"))
    print_view(found, as_json)
    if figure is not None:
        drawn = found.plot()
        if drawn is not None:
            save(drawn, figure)
        note("no figure: the step was not taken apart" if drawn is None else f"figure written to {figure}")
    if found.proof is not None:
        raise typer.Exit(found.proof.exit_code)
