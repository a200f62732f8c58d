"""`assay absent`: run a script on a GPU that is not there, and say whether it fits."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from assay.absent.allocator_runs import AllocatorRuns
    from assay.absent.largest import LargestFit
    from assay.absent.ranks_answer import RanksAnswer
    from assay.absent.script_answer import AbsentAnswer

_Device = Annotated[
    str | None, typer.Argument(metavar="[DEVICE]", help="The GPU, or setup; without it, all of them are listed.")
]
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
_Largest = Annotated[
    bool, typer.Option("--largest", help="Find the largest number in the place of {} that fits, by several runs.")
]
_Compare = Annotated[
    bool, typer.Option("--compare-allocators", help="Compare usual settings of torch's allocator, by a run for each.")
]
_Allocator = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SETTINGS", help="Compare these with torch's defaults, in place of the usual ones; repeatable."
    ),
]
_Times = Annotated[
    bool, typer.Option("--times", help="Also predict the time of a step, from the operators of the third one.")
]
_AtMost = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Exit with 5 if the peak of requested memory is above it: 20GiB.")
]
_Yes = Annotated[bool, typer.Option("--yes", help="Make the environment of `setup` without a question.")]
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
    largest: _Largest = False,
    compare_allocators: _Compare = False,
    allocator: _Allocator = None,
    times: _Times = False,
    at_most: _AtMost = None,
    yes: _Yes = False,
    as_json: _Json = None,
) -> None:
    """Run your script on a GPU that is not there.

    torch's CUDA build runs in the script's own environment, on Linux without a GPU. Memory is exact, nothing is
    computed, and what the script times means nothing. The script's output goes to standard error.

    `setup` makes an environment with a CUDA build of torch beside the one whose Python follows.

    \b
        assay absent
        assay absent setup -- .venv/bin/python
        assay absent h100 --steps 3 -- python train.py --batch_size 32
        assay absent a100-40gb --largest -- python train.py --batch_size {}
        assay absent h100 --compare-allocators -- python train.py
        assay absent h100 --ranks 8 -- python train_fsdp.py
        assay absent h100 --steps 3 --at-most 20GiB -- python train.py
        assay absent rtx4090 --read train.py:12=300 --json answer.json -- python train.py

    Exit codes: 0 done; 2 wrong input, or a machine that cannot; 3 the script failed; 5 it does not fit, or takes more
    than --at-most; 130 interrupted.
    """
    found: AbsentAnswer | AllocatorRuns | LargestFit | RanksAnswer
    if device is None:
        _list_devices()
        return
    if device == "setup":
        _set_up(command or ["python"], yes=yes)
        return
    compared = None if allocator is None and not compare_allocators else allocator or ()
    _check_ranks(ranks, rank, largest=largest)
    asked = {"--times": times, "--at-most": at_most is not None}
    _check_alone(asked, compared, alone=ranks is None and not largest)
    most = _limit(at_most)
    target = _target(as_json)
    if ranks is not None:
        found = _of_ranks(device, command or (), ranks, rank, devices, steps, read or ())
    else:
        run = _run_of_one(largest=largest, compared=compared, times=times)
        found = run(device, command or (), steps=steps, devices=devices or 1, reads=read or ())
    _say(found, target, alone=as_json == "-")
    raise typer.Exit(found.exit_code or _exceeds(found, most))


def _target(as_json: str | None) -> "Path | None":
    """The file for the answer as JSON, which can be written; None if there is none."""
    from pathlib import Path

    from assay.files import check_target

    if as_json in (None, "-"):
        return None
    target = Path(str(as_json))
    check_target(target, "answer", (".json",))
    return target


def _of_ranks(
    device: str,
    command: Sequence[str],
    ranks: int,
    rank: str | None,
    devices: int | None,
    steps: int | None,
    reads: Sequence[str],
) -> "RanksAnswer":
    from assay import api
    from assay.cli.console import note

    return api.absent_ranks(
        device, command, ranks, run=rank, devices=devices, steps=steps, reads=reads, on_progress=note
    )


def _check_ranks(ranks: int | None, rank: str | None, *, largest: bool) -> None:
    from assay.errors import UsageError

    if rank is not None and ranks is None:
        raise UsageError("--rank needs --ranks, the number of all ranks")
    if largest and ranks is not None:
        raise UsageError("--largest asks for one process; leave --ranks out")


def _run_of_one(
    *, largest: bool, compared: Sequence[str] | None, times: bool
) -> "Callable[..., AbsentAnswer | AllocatorRuns | LargestFit]":
    """The function that answers for one process; `compared` are settings of the allocator, or None."""
    from assay import api
    from assay.cli.console import note

    if largest:
        return partial(api.absent_largest, on_progress=note)
    if compared is not None:
        return partial(api.absent_allocators, settings=compared, on_progress=note)
    return partial(api.absent, times=times, on_progress=note)


def _limit(at_most: str | None) -> int | None:
    from assay.units import parse_bytes

    return None if at_most is None else parse_bytes(at_most)


def _exceeds(found: object, most: int | None) -> int:
    """Return the exit code of a limit, and say by how much the peak is above it; 0 without a limit."""
    from assay.absent.script_answer import AbsentAnswer
    from assay.cli.console import note
    from assay.records.status import Exit
    from assay.units import format_bytes

    if most is None or not isinstance(found, AbsentAnswer) or found.peak is None:
        return 0
    over = found.peak.requested_bytes - most
    if over <= 0:
        return 0
    note(f"the peak of requested memory is {format_bytes(over)} above --at-most {format_bytes(most)}")
    return Exit.UNMET


def _check_alone(asked: Mapping[str, bool], compared: Sequence[str] | None, *, alone: bool) -> None:
    from assay.errors import UsageError

    for option in (option for option, given in asked.items() if given and not (alone and compared is None)):
        raise UsageError(f"{option} asks for one run of one process; leave --largest, --ranks and allocators out")
    if compared is not None and not alone:
        raise UsageError("allocators are compared by runs of one process; leave --largest and --ranks out")


def _say(
    found: "AbsentAnswer | AllocatorRuns | LargestFit | RanksAnswer", target: "Path | None", *, alone: bool
) -> None:
    """Print the answer as text, or `alone` as JSON, and write it to a file."""
    from assay.cli.console import note, print_view
    from assay.files import write_file
    from assay.report import view
    from assay.units import json_text

    shown = view(found)
    print_view(shown, alone)
    if target is not None:
        write_file(target, json_text(shown.values(), indent=1).encode())
        note(f"answer written to {target}")


def _list_devices() -> None:
    from assay.absent.gpus import ABSENT
    from assay.cli.console import print_blocks
    from assay.report.absent import device_table

    print_blocks([device_table(ABSENT)])


def _set_up(command: list[str], *, yes: bool) -> None:
    import sys

    from assay.absent.setup import make, plan
    from assay.cli.console import note
    from assay.errors import UsageError
    from assay.units import format_bytes

    wanted = plan(command[0])
    torch, *others = wanted.requirements
    note(f"{wanted.folder} will have {torch} for CUDA and {len(others)} other packages of {wanted.python}.")
    note(f"It takes about {format_bytes(wanted.nbytes)} on disk.")
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("standard input is not a terminal to confirm on; give --yes to make it without a question")
        typer.confirm("Make it?", abort=True, err=True)
    make(wanted, note)
    note(f"done; name its Python: assay absent h100 -- {wanted.new_python} train.py")
