"""Arguments and options that several verbs share: the configuration, its changes, and the name of a run."""

from pathlib import Path
from typing import Annotated

import typer

from assay.errors import UsageError

_PRESETS = ", ".join(sorted(path.stem for path in (Path(__file__).parents[1] / "config" / "presets").glob("*.yaml")))
"""Names of the presets, read from the folder because help must not load the configuration package."""

Source = Annotated[
    str | None,
    typer.Argument(
        metavar="[PRESET|FILE]", help=f"A YAML file or a preset ({_PRESETS}); left out: demo.", show_default=False
    ),
]

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="What to change in it, for instance model.n_layer=8."),
]

With = Annotated[
    list[str] | None,
    typer.Option(
        "--with", metavar="NAME[:FIELD=VALUE,...][+NAME...]", help="Turn optimizations on; several --with add up."
    ),
]

Nproc = Annotated[
    int | None,
    typer.Option("--nproc", metavar="N", help="Processes on this machine that optimizations may divide a run among."),
]

Nodes = Annotated[
    int | None,
    typer.Option("--nodes", metavar="N", help="Plan for so many nodes that are not here (1, where --gpu is given)."),
]

GpusPerNode = Annotated[
    int | None, typer.Option("--gpus-per-node", metavar="N", help="GPUs in each of those nodes; left out: 8.")
]

Gpu = Annotated[
    str | None, typer.Option("--gpu", metavar="a100|h100|h200", help="Which GPU those nodes have; left out: a100.")
]

Oversubscribe = Annotated[bool, typer.Option("--oversubscribe", help="Allow more processes than cores.")]


def changes(overrides: list[str] | None, nproc: int | None, oversubscribe: bool = False) -> list[str]:
    """Return the overrides, with the options added to them. Raises `UsageError` if both give the number of ranks."""
    given = [one for one in overrides or () if one.partition("=")[0] == "ranks"]
    if nproc is not None and given:
        raise UsageError(f"--nproc {nproc} and {given[0]} say how many ranks twice; give one of them")
    ranks = [] if nproc is None else [f"ranks={nproc}"]
    return [*(overrides or ()), *ranks, *(["oversubscribe=true"] if oversubscribe else [])]


RunName = Annotated[str, typer.Argument(metavar="RUN", help="An id or a name, the start of one, or last.")]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON value and nothing else.")]
