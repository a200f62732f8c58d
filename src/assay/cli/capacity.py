"""`assay capacity`: the largest batch, context, depth and width that fit into some memory."""

from typing import Annotated

import typer

from assay.cli.options import AbsentGpu, Json, Memory, Nproc, Of, Overrides, Source, With, changes, check_place
from assay.records.status import Exit


def capacity(
    source: Source = None,
    overrides: Overrides = None,
    memory: Memory = None,
    of: Of = None,
    device: AbsentGpu = None,
    with_: With = None,
    nproc: Nproc = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Train each answer for three steps, and measure its peak.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Find the largest batch and model that fit.

    The answers are the largest batch, context, depth and width. Memory means what tensors and library scratch take
    beyond the started process. With --of process the process counts too; with --of device CUDA's context and what
    torch's allocator reserves. Each setting grows alone. The answer is computed by the ledger, without torch.

    \b
        assay capacity gpt2-124m --memory 8GB --with sdpa_attention+bf16_mixed
        assay capacity demo --memory 100MB --verify
        assay capacity gpt2-124m model.vocab_size=50257 --device rtx4090 --with bf16_mixed

    Exit codes: 0 done; 2 wrong input; 5 with --verify: a measured peak is above the budget.
    """
    from assay import api
    from assay.cli.console import note, print_view
    from assay.units import parse_bytes

    check_place(device, source, *(overrides or ()))
    found = api.capacity(
        source,
        *changes(overrides, nproc),
        memory_bytes=None if memory is None else parse_bytes(memory),
        of=of,
        device=device,
        optimizations=with_ or (),
        verify=verify,
        on_progress=note,
    )
    print_view(found, as_json)
    if any(one.measured_bytes is not None and one.measured_bytes > found.budget_bytes for one in found):
        raise typer.Exit(Exit.UNMET)
