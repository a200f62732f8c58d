"""`assay anatomy`: time, FLOPs and bytes of a step, by class of operator and by module."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import Json, Overrides, Source, With

if TYPE_CHECKING:
    from assay.records.anatomy import Anatomy, Sum


def anatomy(
    source: Source = None,
    overrides: Overrides = None,
    with_: With = None,
    figure: Annotated[
        Path | None,
        typer.Option(
            "--figure", metavar="FILE.png|.svg", help="Also draw a figure into this file.", show_default=False
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure one optimizer step: time, FLOPs and bytes by class of operator and by module.

    The classes are tensor contractions, statistical normalizations, element-wise operators and data movement.

    \b
        assay anatomy gpt2-124m training.batch_size=2
        assay anatomy demo --with sdpa_attention --figure anatomy.png
    """
    from assay import api
    from assay.cli.console import note, plain, print_json
    from assay.cli.progress import watcher
    from assay.cli.summary import proof
    from assay.records.status import Status
    from assay.report.anatomy import draw, drawable

    if figure is not None:
        drawable(figure)
    with watcher() as watch:

        def tell(message: str, fraction: float | None) -> None:
            watch({"event": "prepare", "message": message, "fraction": fraction})

        answer = api.anatomy(source, *(overrides or ()), optimizations=with_ or (), on_progress=tell)
    if as_json:
        print_json({**_totals(answer), **plain(answer)})
    else:
        typer.echo(f"One step of {answer.title}")
        classes: dict[str, Sum] = {str(kind): one for kind, one in answer.by_class().items()}
        _print_sums("class of operator", {**classes, "all": answer.whole}, answer.whole)
        _print_sums("module", answer.by_module(), answer.whole)
        typer.echo(_caveat(answer))
        for evidence in answer.evidence:
            typer.echo(proof(evidence))
    if figure is not None:
        draw(answer, figure)
        note(f"figure written to {figure}")
    if not all(evidence.verdict for evidence in answer.evidence):
        raise typer.Exit(Status.NO_EFFECT.exit_code)


def _totals(answer: "Anatomy") -> dict[str, object]:
    return {
        "by_class": {kind: one.model_dump() for kind, one in answer.by_class().items()},
        "by_module": {module: one.model_dump() for module, one in answer.by_module().items()},
        "whole": answer.whole.model_dump(),
    }


def _print_sums(title: str, sums: "Mapping[str, Sum]", whole: "Sum") -> None:
    from assay.cli.console import print_table

    columns = (title, "time", "of time", "FLOPs", "of FLOPs", "bytes", "of bytes", "operators")
    rows = [(name, *_figures(one, whole)) for name, one in sums.items()]
    print_table(columns, rows, right=columns[1:], spare=("of bytes", "of FLOPs", "operators"))


def _figures(one: "Sum", whole: "Sum") -> Iterator[str]:
    from assay.units import format_bytes, format_flops, format_seconds

    yield format_seconds(one.seconds)
    yield f"{one.seconds / whole.seconds:.1%}"
    yield format_flops(one.flops) if one.flops else "–"
    yield f"{one.flops / whole.flops:.1%}"
    yield format_bytes(one.bytes)
    yield f"{one.bytes / whole.bytes:.1%}"
    yield str(one.count)


def _caveat(answer: "Anatomy") -> str:
    from assay.units import format_seconds

    inside, unwatched = format_seconds(answer.whole.seconds), format_seconds(answer.step_seconds)
    return (
        f"Operators took {inside} in total, each timed on its own. The step took {unwatched} without instruments and "
        f"{format_seconds(answer.watched_seconds)} with them. FLOPs are those of contractions; bytes are the least "
        "that an operator can move."
    )
