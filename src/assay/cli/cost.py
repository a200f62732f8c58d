"""`assay cost`: hours, energy and money of a training on some tokens."""

from typing import Annotated

import typer

from assay.cli.options import Device, Json, Overrides, Source, With, arguments, check_place, count_of

_Tokens = Annotated[str, typer.Option("--tokens", metavar="COUNT", help="Training tokens: 300B.")]
_Number = Annotated[int | None, typer.Option("--devices", min=1, help="Number of devices; default: 1.")]
_Mfu = Annotated[
    float | None, typer.Option("--mfu", help="Share of the 16-bit peak; default: that of the stack's step.")
]
_Price = Annotated[float | None, typer.Option("--price", help="Money for an hour of one device.")]


def cost(
    tokens: _Tokens,
    source: Source = None,
    overrides: Overrides = None,
    with_: With = None,
    device: Device = None,
    devices: _Number = None,
    mfu: _Mfu = None,
    price: _Price = None,
    as_json: Json = False,
) -> None:
    """Predict a training's hours, energy and money.

    The hours are those of the step that assay estimate predicts for the stack and the device. Several devices compute a
    batch each, and wait for nothing. Where no step is predicted, 40 % of the peak is assumed, and the answer says so. A
    cost is of one run, so several --with are joined to one stack.

    \b
        assay cost gpt2-124m --tokens 10B
        assay cost gpt2-124m --tokens 10B --device h100 --devices 8 --price 2.5 --with bf16_mixed+sdpa_attention

    Exit codes: 0 done; 2 wrong input.
    """
    from assay import api
    from assay.cli.console import print_view

    check_place(device, source, *(overrides or ()))
    options = {"--device": device, "--devices": devices, "--mfu": mfu, "--price": price}
    asked = {"tokens": count_of("--tokens", tokens), "optimizations": with_ or ()} | arguments(options, *options)
    print_view(api.training_cost(source, *(overrides or ()), **asked), as_json)
