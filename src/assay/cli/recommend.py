"""`assay recommend`: what to turn on, so that a step fits into some memory and is as fast as can be."""

from typing import Annotated

import typer

from assay.cli.options import AbsentGpu, GpusPerNode, Json, Memory, Of, Overrides, Source, check_place, count_of


def recommend(
    source: Source = None,
    overrides: Overrides = None,
    memory: Memory = None,
    of: Of = None,
    device: AbsentGpu = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", metavar="N", help="Number of GPUs of --device; also recommend a layout.")
    ] = None,
    gpus_per_node: GpusPerNode = None,
    tokens: Annotated[
        str | None, typer.Option("--tokens", metavar="COUNT", help="Print how long a training on them takes: 1B.")
    ] = None,
    price: Annotated[
        float | None, typer.Option("--price", help="With --tokens: money for an hour of one device; print the cost.")
    ] = None,
    max_loss_change: Annotated[
        float,
        typer.Option(
            "--max-loss-change",
            metavar="FRACTION",
            help="Largest change of the loss in like runs; without these, published practice decides; 1: any.",
        ),
    ] = 0.01,
    calibrate: Annotated[
        float | None,
        typer.Option("--calibrate", metavar="SECONDS", help="Time front-runners here first: 90; 0: a roofline."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare the first three in short runs, and say whether the order held.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Recommend the fastest stack that fits.

    Every compatible stack of techniques and micro-batches is searched. Memory is that of the ledger. Times are
    those of --device, or of this machine with --calibrate: front-runners are timed, and correct the roofline of all
    others. With neither, stacks are ranked by their arithmetic. Techniques that train differently are listed apart.
    What the configuration turns on itself stays on. With several --gpus, layouts over them are planned from
    datasheets, and nothing is timed.

    \b
        assay recommend gpt2-124m --memory 8GB
        assay recommend shakespeare-char-cpu --memory 1GB --calibrate 90 --verify
        assay recommend gpt2-124m --device a100-40gb --tokens 10B --price 1.5
        assay recommend gpt2-124m training.batch_size=512 --device a100 --gpus 64 --tokens 1B
    """
    from assay import api
    from assay.cli.console import note, print_view
    from assay.units import parse_bytes

    check_place(device, source, *(overrides or ()))
    found = api.recommend(
        source,
        *(overrides or ()),
        memory_bytes=None if memory is None else parse_bytes(memory),
        of=of,
        device=device,
        gpus=gpus,
        gpus_per_node=gpus_per_node,
        tokens=None if tokens is None else count_of("--tokens", tokens),
        price=price,
        max_loss_change=None if max_loss_change == 1 else max_loss_change,
        calibrate=calibrate,
        verify=verify,
        on_progress=note,
    )
    print_view(found, as_json)
