"""`assay gradients`: gradients of a trained run, by module and between micro-batches."""

from typing import Annotated

import typer

from assay.cli.options import Json, RunName


def gradients(
    run: RunName,
    micro_batches: Annotated[int, typer.Option(min=2, max=1000, metavar="N", help="Number of micro-batches.")] = 8,
    sequences: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Sequences of each; default: the run's batch size.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure the gradients of a trained model.

    The model is that of the run's newest checkpoint. The answer is the scale of each module, the agreement of
    micro-batches, and the noise scale. Each micro-batch is one that the run would train next. Nothing is updated. The
    noise scale is about the batch size from which larger batches help little.

    \b
        assay gradients last --micro-batches 32
    """
    from assay import api
    from assay.cli.console import print_view
    from assay.cli.progress import watcher

    with watcher() as watch:

        def tell(message: str, fraction: float | None) -> None:
            watch({"event": "prepare", "message": message, "fraction": fraction})

        found = api.gradients(run, micro_batches=micro_batches, sequences=sequences, on_progress=tell)
    print_view(found, as_json)
