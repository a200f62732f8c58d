"""`assay inference`: memory and speed of generation on one device, by its datasheet."""

from typing import Annotated

import typer

from assay.cli.options import Device, Json, Overrides, Source, arguments, check_place

_Bits = Annotated[int | None, typer.Option("--bits", metavar="32|16|8|4", help="Bits of a weight; default: 16.")]


def inference(
    source: Source = None,
    overrides: Overrides = None,
    device: Device = None,
    bits: _Bits = None,
    as_json: Json = False,
) -> None:
    """Predict the memory and speed of inference.

    Tables have the memory of weights and of cached keys and values, and the speed by sequences and context. They also
    say from where on products or caches limit it. All follows from the device's datasheet, so times are lower bounds.

    \b
        assay inference gpt2-124m
        assay inference llama-3.2-1b --device rtx4090 --bits 8

    Exit codes: 0 done; 2 wrong input.
    """
    from assay import api
    from assay.cli.console import print_view

    check_place(device, source, *(overrides or ()))
    options = {"--device": device, "--bits": bits}
    print_view(api.inference(source, *(overrides or ()), **arguments(options, *options)), as_json)
