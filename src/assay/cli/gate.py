"""`assay gate`: lock what a training step takes, and check that it has not grown."""

from pathlib import Path
from typing import Annotated, Any

import typer

from assay.cli.options import Json

app = typer.Typer(help="Lock what a step takes, and check it.")

_Steps = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE.py:FUNCTION]...",
        help="Functions that return your training step, a function, or (model, batch); default: all of the lock.",
        show_default=False,
    ),
]
_Devices = Annotated[
    list[str] | None,
    typer.Option("--device", metavar="NAME", help="cpu, or a GPU that may be absent: h100. Several may be given."),
]
_Lock = Annotated[
    Path | None,
    typer.Option(
        "--lock", metavar="FILE.json", help="The lock; default: assay-gate.json here or beside the file of a step."
    ),
]
_Allow = Annotated[
    str | None,
    typer.Option("--allow", metavar="GROWTH", help="Growth of bytes and FLOPs that passes: 1%; or of bytes: 1MB."),
]
_Strict = Annotated[
    bool, typer.Option("--strict", help="Fail for growth under another version of torch than that of the lock, too.")
]
_Junit = Annotated[Path | None, typer.Option("--junit", metavar="FILE.xml", help="Write the checks as JUnit's XML.")]
_Markdown = Annotated[Path | None, typer.Option("--markdown", metavar="FILE.md", help="Write the answer as Markdown.")]

_Base = Annotated[
    str, typer.Option("--base", metavar="REV", help="Commit of git with which the working tree is compared: main.")
]
_RealDevice = Annotated[
    str | None,
    typer.Option("--device", metavar="cpu|cuda", help="A device of this machine; default: the one that a step uses."),
]
_AtMost = Annotated[
    float | None,
    typer.Option("--at-most", metavar="RATIO", help="Fail if a whole interval is above this ratio: 1.1."),
]
_Pairs = Annotated[
    int, typer.Option("--pairs", min=3, metavar="N", help="Pairs of processes; more of them make intervals narrower.")
]


@app.command()
def update(steps: _Steps = None, device: _Devices = None, lock: _Lock = None, as_json: Json = False) -> None:
    """Lock the figures of training steps.

    Figures are the peak of tensors, the bytes saved for backward, FLOPs, and waits of the host. A step is followed on
    tensors without memory, so a GPU may be absent, and the figures are equal on every processor.

    \b
        assay gate update train.py:build
        assay gate update train.py:build --device cpu --device h100

    Exit codes: 0 done; 2 wrong input.
    """
    from assay import api
    from assay.cli.console import note, print_view

    print_view(api.gate_update(steps or (), device or (), lock=lock, on_progress=note), as_json)


@app.command()
def check(
    steps: _Steps = None,
    device: _Devices = None,
    lock: _Lock = None,
    allow: _Allow = None,
    strict: _Strict = False,
    junit: _Junit = None,
    markdown: _Markdown = None,
    as_json: Json = False,
) -> None:
    """Check that training steps have not grown since they were locked.

    A failure names the modules, operators and lines whose bytes grew. Under another version of torch than that of the
    lock the differences are shown, and fail only with --strict.

    \b
        assay gate check
        assay gate check train.py:build --allow 1%
        assay gate check --junit gate.xml --markdown gate.md

    Exit codes: 0 nothing grew; 2 wrong input; 5 a figure grew.
    """
    from assay import api
    from assay.cli.console import note, print_view
    from assay.files import check_target, write_file
    from assay.report.gate import junit_text, markdown_text

    written = [(junit, junit_text, "checks", ".xml"), (markdown, markdown_text, "answer", ".md")]
    for path, _, what, ending in written:
        if path is not None:
            check_target(path, what, (ending,))
    options: dict[str, Any] = {"allow": allow, "strict": strict, "lock": lock}
    found = api.gate_check(steps or (), device or (), on_progress=note, **options)
    print_view(found, as_json)
    for path, text, _, _ in written:
        if path is not None:
            write_file(path, text(found).encode())
    raise typer.Exit(found.exit_code)


@app.command()
def time(
    base: _Base,
    steps: _Steps = None,
    device: _RealDevice = None,
    at_most: _AtMost = None,
    pairs: _Pairs = 5,
    lock: _Lock = None,
    as_json: Json = False,
) -> None:
    """Time training steps beside themselves at a commit of git.

    The commit is checked out elsewhere meanwhile. Two processes take turns in short blocks, several pairs of them one
    after the other. The answer is the ratio of their times, with a 95 % interval. Times of an absent GPU mean nothing.

    \b
        assay gate time --base main
        assay gate time train.py:build --base HEAD~3 --at-most 1.1

    Exit codes: 0 done; 2 wrong input; 5 a whole interval is above --at-most.
    """
    from assay import api
    from assay.cli.console import note, print_view

    options: dict[str, Any] = {"base": base, "device": device, "pairs": pairs, "at_most": at_most, "lock": lock}
    found = api.gate_time(steps or (), on_progress=note, **options)
    print_view(found, as_json)
    raise typer.Exit(found.exit_code)
