"""`assay absent`: run a script on a GPU that is not there, and say whether it fits."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from assay.absent.answer import AbsentAnswer
    from assay.absent.largest import LargestFit
    from assay.report.blocks import Block

_Device = Annotated[str | None, typer.Argument(metavar="[DEVICE]", help="The GPU; without it, all of them are listed.")]
_Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- COMMAND]...", help="The script with its Python: python train.py --lr 1e-3."),
]
_Steps = Annotated[int | None, typer.Option(min=1, metavar="N", help="End the script after N steps of its optimizer.")]
_Devices = Annotated[int, typer.Option(min=1, max=64, metavar="N", help="Equal devices that the script sees.")]
_Read = Annotated[
    list[str] | None,
    typer.Option("--read", metavar="FILE:LINE=VALUE", help="State a value that a line reads: 300, 0.5 or True."),
]
_Largest = Annotated[
    bool, typer.Option("--largest", help="Find the largest number in the place of {} that fits, by several runs.")
]
_Json = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write the answer as JSON; - prints it alone.")
]


def absent(
    device: _Device = None,
    command: _Command = None,
    steps: _Steps = None,
    devices: _Devices = 1,
    read: _Read = None,
    largest: _Largest = False,
    as_json: _Json = None,
) -> None:
    """Run an unchanged script on a GPU that is not there: does it fit, and what does a step do?

    torch's CUDA build runs in the script's own environment, on Linux without a GPU. Memory is exact, nothing is
    computed, and times mean nothing. The script's output goes to standard error.

    \b
        assay absent
        assay absent h100 --steps 3 -- python train.py --batch_size 32
        assay absent a100-40gb --largest -- python train.py --batch_size {}
        assay absent rtx4090 --read train.py:12=300 --json answer.json -- python train.py

    Exit codes: 0 done; 2 wrong input, or a machine that cannot; 3 the script does not fit, or failed; 130 interrupted.
    """
    from pathlib import Path

    from assay import api
    from assay.cli.console import note, print_blocks, print_json
    from assay.files import check_target, write_file
    from assay.units import json_text

    if device is None:
        _list_devices()
        return
    target = None if as_json in (None, "-") else Path(str(as_json))
    if target is not None:
        check_target(target, "answer", (".json",))
    run = api.absent_largest if largest else api.absent
    found = run(device, command or (), steps=steps, devices=devices, reads=read or (), on_progress=note)
    if as_json == "-":
        print_json(found.to_dict())
    else:
        print_blocks(_report(found))
    if target is not None:
        write_file(target, json_text(found.to_dict(), indent=1).encode())
        note(f"answer written to {target}")
    raise typer.Exit(found.exit_code)


def _list_devices() -> None:
    from assay.absent.devices import ABSENT
    from assay.cli.console import print_blocks
    from assay.report.absent import device_table

    print_blocks([device_table(ABSENT)])


def _report(found: "AbsentAnswer | LargestFit") -> "Iterator[Block]":
    from assay.absent.largest import LargestFit
    from assay.report.absent import absent_report
    from assay.report.absent_largest import largest_report

    return largest_report(found) if isinstance(found, LargestFit) else absent_report(found)
