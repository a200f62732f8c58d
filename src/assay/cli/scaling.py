"""`assay scaling`: fit a scaling law to points of trained models, and ask published laws for the best size."""

from typing import Annotated

import typer

from assay.cli.options import Json, count_of

app = typer.Typer(no_args_is_help=True, help="Fit scaling laws, and ask them how large and how long.")

_Flops = Annotated[str | None, typer.Option("--flops", metavar="COUNT", help="Training compute: 1e21.")]
_Params = Annotated[str | None, typer.Option("--params", metavar="COUNT", help="Model size: 70B.")]
_Tokens = Annotated[str | None, typer.Option("--tokens", metavar="COUNT", help="Training tokens: 1T.")]


@app.command("fit")
def fit_law(
    points: Annotated[
        str, typer.Argument(metavar="POINTS.csv", help="Columns loss, and two of parameters, tokens, flops.")
    ],
    drop: Annotated[int, typer.Option(min=0, help="Leave out so many points with the highest losses.")] = 0,
    below: Annotated[
        str | None, typer.Option("--below", metavar="FLOPS", help="Fit only points with less compute; test the rest.")
    ] = None,
    draws: Annotated[int, typer.Option(min=2, max=100_000, help="Draws of the bootstrap.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    as_json: Json = False,
) -> None:
    """Fit L(N, D) = E + A/N^α + B/D^β, with intervals by the bootstrap.

    \b
        assay scaling fit points.csv
        assay scaling fit points.csv --drop 5 --below 1e20
    """
    from assay.api import scaling
    from assay.cli.console import print_blocks, print_json
    from assay.report.predicted.scaling import fit_report, fit_values

    found = scaling.fit(
        points, drop=drop, below_flops=None if below is None else count_of("--below", below), draws=draws, seed=seed
    )
    print_json(fit_values(found)) if as_json else print_blocks(fit_report(found))


@app.command("optimal")
def optimal_size(flops: _Flops = None, params: _Params = None, tokens: _Tokens = None, as_json: Json = False) -> None:
    """Show the best model size and data under each published law, for compute, a size or an amount of data.

    \b
        assay scaling optimal --flops 1e21
        assay scaling optimal --params 70B
    """
    from assay.api import scaling
    from assay.cli.console import print_blocks, print_json
    from assay.report.predicted.scaling import optimal_report

    asked = {"--flops": flops, "--params": params, "--tokens": tokens}
    counts = {option: None if text is None else count_of(option, text) for option, text in asked.items()}
    found = scaling.optimal(flops=counts["--flops"], parameters=counts["--params"], tokens=counts["--tokens"])
    if as_json:
        print_json({name: one._asdict() | {"ratio": one.tokens_per_parameter} for name, one in found.items()})
    else:
        print_blocks(optimal_report(found))
