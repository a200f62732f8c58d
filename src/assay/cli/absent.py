"""`assay absent`: run a script on a GPU that is not there, and say whether it fits."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay.absent.answer import AbsentAnswer
    from assay.absent.ranks_answer import RanksAnswer
    from assay.report.blocks import Block

_Device = Annotated[str | None, typer.Argument(metavar="[DEVICE]", help="The GPU; without it, all of them are listed.")]
_Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- COMMAND]...", help="The script with its Python: python train.py --lr 1e-3."),
]
_Steps = Annotated[int | None, typer.Option(min=1, metavar="N", help="End the script after N steps of its optimizer.")]
_Devices = Annotated[
    int | None,
    typer.Option(min=1, max=64, metavar="N", help="Equal devices that a process sees; default: 1, with --ranks 8."),
]
_Ranks = Annotated[
    int | None, typer.Option(metavar="N", help="Run the script as ranks of N, each with a device, as torchrun would.")
]
_Rank = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="The ranks that are run, such as 0,3, or all; default: the first and the last."),
]
_Read = Annotated[
    list[str] | None,
    typer.Option("--read", metavar="FILE:LINE=VALUE", help="State a value that a line reads: 300, 0.5 or True."),
]
_Json = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write the answer as JSON; - prints it alone.")
]


def absent(
    device: _Device = None,
    command: _Command = None,
    steps: _Steps = None,
    devices: _Devices = None,
    ranks: _Ranks = None,
    rank: _Rank = None,
    read: _Read = None,
    as_json: _Json = None,
) -> None:
    """Run an unchanged script on a GPU that is not there: does it fit, and what does a step do?

    torch's CUDA build runs in the script's own environment, on Linux without a GPU. Memory is exact, nothing is
    computed, and times mean nothing. The script's output goes to standard error.

    \b
        assay absent
        assay absent h100 --steps 3 -- python train.py --batch_size 32
        assay absent h100 --ranks 8 -- python train_fsdp.py
        assay absent rtx4090 --read train.py:12=300 --json answer.json -- python train.py

    Exit codes: 0 done; 2 wrong input, or a machine that cannot; 3 the script does not fit, or failed; 130 interrupted.
    """
    from pathlib import Path

    from assay.cli.console import note, print_blocks, print_json
    from assay.errors import UsageError
    from assay.files import check_target, write_file
    from assay.units import json_text

    if device is None:
        from assay.absent.devices import ABSENT
        from assay.report.absent import device_table

        print_blocks([device_table(ABSENT)])
        return
    if rank is not None and ranks is None:
        raise UsageError("--rank needs --ranks, the number of all ranks")
    target = None if as_json in (None, "-") else Path(str(as_json))
    if target is not None:
        check_target(target, "answer", (".json",))
    found, blocks = _answered(device, command or (), ranks, rank, devices, steps, read or ())
    if as_json == "-":
        print_json(found.to_dict())
    else:
        print_blocks(blocks)
    if target is not None:
        write_file(target, json_text(found.to_dict(), indent=1).encode())
        note(f"answer written to {target}")
    raise typer.Exit(found.status.exit_code)


def _answered(
    device: str,
    command: Sequence[str],
    ranks: int | None,
    rank: str | None,
    devices: int | None,
    steps: int | None,
    reads: Sequence[str],
) -> "tuple[AbsentAnswer | RanksAnswer, Iterable[Block]]":
    """The answer of one process, or of several ranks, and its report."""
    from assay import api
    from assay.cli.console import note
    from assay.report.absent import absent_report
    from assay.report.absent_ranks import absent_ranks_report

    if ranks is None:
        alone = api.absent(device, command, devices=devices or 1, steps=steps, reads=reads, on_progress=note)
        return alone, absent_report(alone)
    every = api.absent_ranks(
        device, command, ranks, run=rank, devices=devices, steps=steps, reads=reads, on_progress=note
    )
    return every, absent_ranks_report(every)
