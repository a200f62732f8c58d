"""`assay scaling optimal` and `assay scaling batch`: what laws answer."""

from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import Json, count_of
from assay.errors import UsageError

if TYPE_CHECKING:
    from assay.api.asking.results import Grown, Optima

_Flops = Annotated[str | None, typer.Option("--flops", metavar="COUNT", help="Training compute: 1e21.")]
_Params = Annotated[str | None, typer.Option("--params", metavar="COUNT", help="Model size: 70B.")]
_Tokens = Annotated[str | None, typer.Option("--tokens", metavar="COUNT", help="Training tokens: 1T.")]
_Grow = Annotated[str | None, typer.Option("--grow", metavar="TIMES", help="How N and D grow with TIMES the compute.")]
_Points = Annotated[
    str | None, typer.Option("--points", metavar="POINTS.csv", help="Ask a law that is fitted to these points as well.")
]
_Ratio = Annotated[
    str | None,
    typer.Option("--tokens-per-parameter", metavar="R", help="Also: the same loss at R tokens for each parameter."),
]
_Inference = Annotated[
    str | None,
    typer.Option("--inference-tokens", metavar="COUNT", help="Also: the same loss, cheapest with so much inference."),
]
_Device = Annotated[
    str | None, typer.Option("--device", metavar="NAME", help="Also: time, energy and money, by a datasheet: h100.")
]
_Number = Annotated[int | None, typer.Option("--devices", min=1, help="With --device: number of devices.")]
_Mfu = Annotated[
    float | None, typer.Option("--mfu", help="With --device: share of the 16-bit peak that is reached; default: 0.4.")
]
_Price = Annotated[float | None, typer.Option("--price", help="With --device: money for an hour of one device.")]
_Far = Annotated[bool, typer.Option("--far", help="Answer beyond 10,000 times the fitted compute.")]


def optimal_size(
    flops: _Flops = None,
    params: _Params = None,
    tokens: _Tokens = None,
    grow: _Grow = None,
    points: _Points = None,
    tokens_per_parameter: _Ratio = None,
    inference_tokens: _Inference = None,
    device: _Device = None,
    devices: _Number = None,
    mfu: _Mfu = None,
    price: _Price = None,
    far: _Far = False,
    as_json: Json = False,
) -> None:
    """Show the best model size and data under each law, for compute, a size or an amount of data.

    Answers beyond 100 times the compute of the largest run behind a law are marked. Beyond 10,000 times a law refuses,
    and the others still answer; --far answers all the same.

    \b
        assay scaling optimal --flops 1e21 --points mine.csv
        assay scaling optimal --params 70B --device h100 --devices 1024 --price 2.5
        assay scaling optimal --flops 1e23 --tokens-per-parameter 200 --inference-tokens 1T
        assay scaling optimal --grow 10 --params 124M --tokens 10B
    """
    from assay.api import scaling
    from assay.cli.console import print_blocks, print_json

    options = {"--flops": flops, "--params": params, "--tokens": tokens, "--grow": grow}
    options |= {"--tokens-per-parameter": tokens_per_parameter, "--inference-tokens": inference_tokens}
    counts = {name: None if text is None else count_of(name, text) for name, text in options.items()}
    times = counts["--grow"]
    if times is None:
        found: Optima | Grown = scaling.optimal(
            flops=counts["--flops"],
            parameters=counts["--params"],
            tokens=counts["--tokens"],
            points=points,
            tokens_per_parameter=counts["--tokens-per-parameter"],
            inference_tokens=counts["--inference-tokens"],
            device=device,
            devices=devices,
            mfu=mfu,
            price=price,
            far=far,
        )
    elif any(one is not None for one in (tokens_per_parameter, inference_tokens, device, devices, mfu, price)):
        raise UsageError("--grow goes with --flops, --params, --tokens, --points and --far only; ask the rest alone")
    else:
        run = counts["--params"], counts["--tokens"]
        found = scaling.growth(times, flops=counts["--flops"], parameters=run[0], tokens=run[1], points=points, far=far)
    print_json(found.to_dict()) if as_json else print_blocks(found.report())
