"""`assay anatomy`: time, FLOPs and bytes of a step, by class of operator and by module."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.options import Json, Overrides, Source, With


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
    perfetto: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json|.json.gz",
            help="Also write every operator of one more step, for ui.perfetto.dev.",
            show_default=False,
        ),
    ] = None,
    memory_snapshot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.pickle",
            help="Also write CUDA's history of a step's memory, for pytorch.org/memory_viz.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure a step's time and work by module.

    Classes of operators are contractions, normalizations, element-wise operators and data movement.

    \b
        assay anatomy gpt2-124m training.batch_size=2
        assay anatomy demo --with sdpa_attention --figure anatomy.png
        assay anatomy demo --perfetto step.json.gz
    """
    from functools import partial

    from assay import api
    from assay.cli.console import note, print_view
    from assay.cli.progress import watcher
    from assay.records.status import Status
    from assay.report.anatomy import draw

    _possible(figure, perfetto, memory_snapshot)
    with watcher() as watch:

        def tell(message: str, fraction: float | None) -> None:
            watch({"event": "prepare", "message": message, "fraction": fraction})

        ask = partial(api.anatomy, source, *(overrides or ()), optimizations=with_ or (), on_progress=tell)
        answer = ask(operators=perfetto is not None, memory_snapshot=memory_snapshot)
    print_view(answer, as_json)
    if figure is not None:
        draw(answer, figure)
        note(f"figure written to {figure}")
    if perfetto is not None:
        answer.perfetto(perfetto)
        note(f"trace written to {perfetto}; open it in ui.perfetto.dev")
    if memory_snapshot is not None:
        note(f"memory snapshot written to {memory_snapshot}; open it in pytorch.org/memory_viz")
    if not all(evidence.verdict for evidence in answer.evidence):
        raise typer.Exit(Status.NO_EFFECT.exit_code)


def _possible(figure: Path | None, perfetto: Path | None, memory_snapshot: Path | None) -> None:
    """Raise `UsageError` if a file cannot be written, before anything is measured for it."""
    from assay.files import check_target
    from assay.report.anatomy import check_trace, drawable

    if figure is not None:
        drawable(figure)
    if perfetto is not None:
        check_trace(perfetto)
    if memory_snapshot is not None:
        check_target(memory_snapshot, "memory snapshot", (".pickle",))
