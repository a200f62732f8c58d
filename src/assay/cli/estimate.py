"""`assay estimate`: memory and work of a step, inference, and the cost of a training, predicted without torch."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.belonging import check_place, check_used, given, only_one
from assay.cli.options import Gpu, GpusPerNode, Json, Nodes, Nproc, Overrides, Source, With, changes
from assay.cli.predicting import MACHINES, answer

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEVICES = "v100, t4, l4, l40s, a100-40gb, a100, h100, h200, b200, rtx3090, rtx4090, rtx5090, mi300x, tpu-v5e"
_Accuracy = Annotated[
    bool, typer.Option("--accuracy", help="Print the errors of earlier predictions, by device and by technique.")
]
_Page = Annotated[Path | None, typer.Option(metavar="FILE", help="With --accuracy: write the errors as a page, too.")]
_Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help=f"A device that may be absent, by its datasheet: {_DEVICES}; with --inference and --tokens default: a100.",
    ),
]
_Instants = Annotated[
    bool, typer.Option("--instants", help="Print the highest instant of each part of the step, not the peak's parts.")
]
_Inference = Annotated[
    bool, typer.Option("--inference", help="Predict weights, cache and speed of inference instead of a step.")
]
_Bits = Annotated[
    int | None, typer.Option("--bits", metavar="32|16|8|4", help="With --inference: bits of a weight; default: 16.")
]
_Tokens = Annotated[
    str | None,
    typer.Option("--tokens", metavar="COUNT", help="Predict hours, energy and money of training on them: 300B."),
]
_Number = Annotated[int | None, typer.Option("--devices", min=1, help="With --tokens: number of devices; default: 1.")]
_Mfu = Annotated[
    float | None,
    typer.Option("--mfu", help="With --tokens: share of the 16-bit peak; default: that of the stack's step."),
]
_Price = Annotated[float | None, typer.Option("--price", help="With --tokens: money for an hour of one device.")]


_Calibrate = Annotated[
    bool, typer.Option("--calibrate", help="First time steps of few blocks, so that the step time is a measured one.")
]
_Trace = Annotated[
    bool, typer.Option("--trace", help="Also trace the program on fake tensors; the only way for a model of your own.")
]
_Absent = Annotated[
    bool,
    typer.Option("--absent", help="With --device: run the step on an absent GPU, with torch's CUDA build (Linux)."),
]
_Largest = Annotated[
    bool, typer.Option("--largest", help="With --trace or --absent: also find the largest batch that fits the device.")
]
_Within = Annotated[
    float | None,
    typer.Option(
        "--within",
        min=1.0,
        max=86400.0,
        metavar="SECONDS",
        help="With --calibrate: time that it may take; default: 20.",
    ),
]
_USES = {
    "": ("--device", "--with", "--nproc", "--instants"),
    "--device": ("--device", "--with", "--instants"),
    "--calibrate": ("--within", "--with", "--nproc", "--instants"),
    "--trace": ("--device", "--with", "--nproc", "--largest"),
    "--absent": ("--device", "--with", "--largest"),
    "--inference": ("--device", "--bits"),
    "--tokens": ("--device", "--with", "--devices", "--mfu", "--price"),
    **dict.fromkeys(MACHINES, ("--with",)),
    "--accuracy": ("--page",),
}
"""Options by the question that uses them. Without one it is a step on this machine, or on a device."""


def estimate(
    source: Source = None,
    overrides: Overrides = None,
    with_: With = None,
    nproc: Nproc = None,
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
    gpu: Gpu = None,
    instants: _Instants = False,
    inference: _Inference = False,
    tokens: _Tokens = None,
    device: _Device = None,
    bits: _Bits = None,
    devices: _Number = None,
    mfu: _Mfu = None,
    price: _Price = None,
    calibrate: _Calibrate = False,
    within: _Within = None,
    trace: _Trace = False,
    absent: _Absent = False,
    largest: _Largest = False,
    accuracy: _Accuracy = False,
    page: _Page = None,
    as_json: Json = False,
) -> None:
    """Predict the memory of one optimizer step by the parts of its peak, and its work, in milliseconds.

    With several --with: print the parts of the peak after each is added to those before it, in columns. With
    --calibrate: first time steps of few blocks, and predict the time of a step from them. With --nproc: predict the
    rank with the highest peak, then memory and payload of all ranks, and their joint step time. With --nodes,
    --gpus-per-node or --gpu: plan the step for other machines, from datasheets. With --device: predict memory and
    time of the step on one GPU that may be absent. Its time follows from operators that were measured on one H200.
    With --inference or --tokens: predict generation, or the cost of a training with a stack, on such a device. With
    --trace:
    follow the program itself on tensors without memory, which serves a model of your own, module:function, as well.
    With --device and --trace or --absent: predict the peak memory of one step on a GPU. A function may then return
    a step of your own. With --accuracy: compare earlier predictions with their measurements.

    \b
        assay estimate demo
        assay estimate gpt2-124m --with sdpa_attention+bf16_mixed training.batch_size=16
        assay estimate shakespeare-char-cpu model.vocab_size=65 --calibrate
        assay estimate demo --nproc 2 --with fully_sharded
        assay estimate gpt2-1558m training.batch_size=512 --nodes 4 --gpus-per-node 8 --gpu h100 --with fully_sharded
        assay estimate gpt2-124m --device rtx4090 --with sdpa_attention+bf16_mixed
        assay estimate my.module:build training.batch_size=16 --trace
        assay estimate gpt2-124m --trace --device h100 --largest
        assay estimate train.py:build --absent --device rtx4090
        assay estimate gpt2-124m --inference --device l4 --bits 8
        assay estimate gpt2-124m --tokens 10B --device h100 --devices 8 --price 2.5 --with bf16_mixed+sdpa_attention
        assay estimate --accuracy --page accuracy.html
    """
    options = {
        "--accuracy": accuracy, "--page": page, "--trace": trace, "--calibrate": calibrate, "--within": within,
        "--inference": inference, "--bits": bits, "--tokens": tokens, "--devices": devices, "--mfu": mfu,
        "--price": price, "--nodes": nodes, "--gpus-per-node": gpus_per_node, "--gpu": gpu, "--device": device,
        "--with": with_, "--nproc": nproc, "--instants": instants,
        "--absent": absent, "--largest": largest,
    }  # fmt: skip
    check_place(device, source, *(overrides or ()))
    answer(_question(options), source, changes(overrides, nproc), options, as_json)


def _question(options: "Mapping[str, Any]") -> str:
    """Return the question that options ask, of `_USES`. Raises `UsageError` for two, and for an option of another."""
    asked = [one for one in given(options) if one in _USES and one != "--device"]
    planned = [one for one in asked if one in MACHINES]
    found = only_one([one for one in asked if one not in planned[1:]])
    found = "--device" if not found and options["--device"] is not None else found
    check_used(found, _USES, options)
    return found
