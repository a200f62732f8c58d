"""`assay capacity`: the largest batch, context, depth and width that fit into some memory."""

from typing import Annotated

import typer

from assay.cli.options import Json, Nproc, Overrides, Source, With, changes


def capacity(
    memory: Annotated[str, typer.Option("--memory", metavar="AMOUNT", help="The budget: 8GB, 500MiB.")],
    source: Source = None,
    overrides: Overrides = None,
    with_: With = None,
    nproc: Nproc = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Train each answer for three steps, and measure its peak.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Find the largest batch, context, depth and width whose step stays within a budget of memory.

    Memory means what tensors and library scratch take beyond the started process. Each setting grows alone. The answer
    is computed by the ledger, without torch.

    \b
        assay capacity gpt2-124m --memory 8GB --with sdpa_attention+bf16_mixed
        assay capacity demo --memory 100MB --verify
    """
    from assay import api
    from assay.cli.console import note, print_blocks, print_json
    from assay.report.predicted.capacity import capacity_report
    from assay.units import parse_bytes

    budget = parse_bytes(memory)
    found = api.capacity(
        source,
        *changes(overrides, nproc),
        memory_bytes=budget,
        optimizations=with_ or (),
        verify=verify,
        on_progress=note,
    )
    if as_json:
        print_json({"memory_bytes": budget, "largest": [one.to_dict() for one in found]})
    else:
        print_blocks(capacity_report(found, budget))
