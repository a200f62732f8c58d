"""`assay scaling`: fit a scaling law to points of trained models, and ask laws how large and how long."""

from typing import Annotated

import typer

from assay.cli.asking import batch_size, optimal_size
from assay.cli.options import Json, count_of

app = typer.Typer(no_args_is_help=True, help="Fit scaling laws, and ask them how large and how long.")


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


app.command("optimal")(optimal_size)
app.command("batch")(batch_size)
