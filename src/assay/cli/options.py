"""Arguments and options that several verbs share: configuration, changes, copies for trackers, the name of a run.

A verb uses some of its options only beside another one: an option that would be ignored is refused in a sentence.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.config import Home
    from assay.tracking.following import Tracking


Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track", metavar="NAME", help="Also copy runs for tensorboard, mlflow, wandb or trackio, offline; repeatable."
    ),
]


def copying(names: list[str] | None, home: "Home") -> "Tracking":
    """Return the listener of the named trackers, a context. Raises `UsageError` for an unknown or a missing one."""
    from assay.cli.console import note
    from assay.tracking.following import Tracking

    return Tracking(names or (), home, note)


def show_how_to_look(listener: "Tracking") -> None:
    """Print the command that shows the copies of each tracker."""
    from assay.cli.console import note

    for command in listener.looks:
        note(command)


_PRESETS = ", ".join(sorted(path.stem for path in (Path(__file__).parents[1] / "config" / "presets").glob("*.yaml")))
"""Names of the presets, read from the folder because help must not load the configuration package."""

Source = Annotated[
    str | None,
    typer.Argument(
        metavar="[PRESET|FILE|FOLDER]",
        help=f"A preset ({_PRESETS}), a YAML file, or the folder of a Hugging Face model; default: demo.",
        show_default=False,
    ),
]

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change, for instance model.n_layer=8."),
]

With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="NAME[:FIELD=VALUE,...][+NAME...]",
        help="Turn optimizations on; several --with are joined to one stack.",
    ),
]

Rows = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="NAME[:FIELD=VALUE,...][+NAME...]",
        help="A stack of optimizations. Each of several --with is a row of its own.",
    ),
]

Nproc = Annotated[
    int | None,
    typer.Option("--nproc", metavar="N", help="Processes on this machine among which optimizations divide a run."),
]

GpusPerNode = Annotated[
    int | None, typer.Option("--gpus-per-node", metavar="N", help="GPUs in each node of the plan; default: 8.")
]

CUDA_DEVICES = "v100, t4, l4, l40s, a100-40gb, a100, h100, h200, b200, rtx3090, rtx4090, rtx5090"
"""Names of the GPUs that run CUDA, written out because help must not load their datasheets."""

Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help=f"A device, by its datasheet: {CUDA_DEVICES}, mi300x, tpu-v5e; default: a100.",
    ),
]

Memory = Annotated[
    str | None, typer.Option("--memory", metavar="AMOUNT", help="The budget: 8GB, 500MiB; by default all of --device.")
]
Of = Annotated[
    str | None,
    typer.Option(
        "--of",
        metavar="tensors|process|device",
        help="Memory that the budget limits; default: tensors, with --device the device.",
    ),
]
AbsentGpu = Annotated[
    str | None, typer.Option("--device", metavar="NAME", help=f"A GPU that may be absent: {CUDA_DEVICES}.")
]
Oversubscribe = Annotated[bool, typer.Option("--oversubscribe", help="Allow more processes than cores.")]


def changes(overrides: list[str] | None, nproc: int | None, oversubscribe: bool = False) -> list[str]:
    """Return the overrides, with the options added to them. Raises `UsageError` if both give the number of ranks."""
    given = [one for one in overrides or () if one.partition("=")[0] == "ranks"]
    if nproc is not None and given:
        raise UsageError(f"--nproc {nproc} and {given[0]} both set the number of ranks; give only one of them")
    ranks = [] if nproc is None else [f"ranks={nproc}"]
    return [*(overrides or ()), *ranks, *(["oversubscribe=true"] if oversubscribe else [])]


def count_of(option: str, text: str) -> float:
    """Return the count that an option has, such as ``300B``. Raises `UsageError` if it is none."""
    from assay.errors import short_text
    from assay.units import parse_count

    try:
        return parse_count(text)
    except ValueError:
        raise UsageError(f"{option} is {short_text(text)}; write a number such as 300B, 1.5T or 2e9") from None


def seconds_of(option: str, text: str) -> float:
    """Return the seconds of a time such as ``2h`` or ``25min``. Raises `UsageError` if it is none."""
    from assay.errors import short_text
    from assay.units import parse_seconds

    try:
        return parse_seconds(text)
    except ValueError:
        raise UsageError(f"{option} is {short_text(text)}; write a time such as 2h, 25min or 90s") from None


RunName = Annotated[str, typer.Argument(metavar="RUN", help="Id or name of a run, the start of either, or last.")]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else.")]

Page = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="File of the page, with its data beside it; default: beside the record."),
]

Uses = Mapping[str, Collection[str]]
"""Options by the mode that uses them. A mode is the option that chooses it, and empty if none is given."""


def given_options(options: Mapping[str, object]) -> list[str]:
    """Return the names of the options that are given: their value is not None, False or empty of words."""
    return [name for name, value in options.items() if value is not None and value is not False and value != []]


def arguments(options: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the named options that are given, as arguments of a function."""
    return {name.strip("-").replace("-", "_"): options[name] for name in names if options[name] is not None}


def only_one(modes: Collection[str]) -> str:
    """Return the mode that is given, empty if none is. Raises `UsageError` if there are several."""
    first, *others = [*modes] or [""]
    if others:
        raise UsageError(f"{first} and {others[0]} ask two questions; give only one of them")
    return first


def check_used(mode: str, uses: Uses, options: Mapping[str, object]) -> None:
    """Raise `UsageError` if an option is given that some mode uses, and this one does not."""
    for name in given_options(options):
        owners = [one for one, used in uses.items() if name in used]
        if mode in owners or not owners:
            continue
        if "" in owners:
            raise UsageError(f"{name} is not used with {mode}; give only one of them")
        raise UsageError(f"{name} is used with {' or '.join(owners)} only; leave it out, or give that")


def check_place(device: str | None, *words: str | None) -> None:
    """Raise `UsageError` if --device names a GPU, and one of the words of a configuration another kind of device."""
    for one in filter(None, words):
        key, _, value = one.partition("=")
        if device is not None and key == "device" and value not in ("cuda", "auto"):
            raise UsageError(f"{one} and --device {device} both say where the step runs; give only one of them")
