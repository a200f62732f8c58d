"""`assay scaling`: fit a scaling law to points of trained models, and ask laws how large and how long."""

from typing import TYPE_CHECKING, Annotated, cast

import typer

from assay.cli import scaling_study
from assay.cli.options import Json, arguments, check_used, count_of
from assay.cli.scaling_questions import batch_size, optimal_size

if TYPE_CHECKING:
    from assay.scaling.law_intervals import Likelihood

app = typer.Typer(no_args_is_help=True, help="Fit scaling laws, and ask them for sizes.")
app.command("run")(scaling_study.run_study)
app.command("points")(scaling_study.study_points)
app.command("report")(scaling_study.study_report)

_Flops = Annotated[str | None, typer.Option("--flops", metavar="COUNT", help="Training compute: 1e21.")]
_Params = Annotated[str | None, typer.Option("--params", metavar="COUNT", help="Model size: 70B.")]
_Tokens = Annotated[str | None, typer.Option("--tokens", metavar="COUNT", help="Training tokens: 1T.")]
_LawName = Annotated[str, typer.Option("--law", metavar="NAME", help="A law; assay scaling laws lists them.")]
_Drop = Annotated[
    int, typer.Option("--drop", min=0, metavar="N", help="Leave out the N points with the highest losses.")
]
_Draws = Annotated[int, typer.Option("--draws", min=20, max=100_000, help="Draws of the bootstrap.")]
_Columns = Annotated[
    str | None,
    typer.Option("--columns", metavar="n=HEADING:UNIT,…", help="Columns of a file: n, d, c, loss, u, c_min, s_min."),
]
_Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the draws.")]
_PointsDrop = Annotated[
    int | None,
    typer.Option("--drop", min=0, metavar="N", help="With POINTS.csv: leave out the N points with the highest losses."),
]
_PointsDraws = Annotated[
    int | None,
    typer.Option("--draws", min=20, max=100_000, help="With POINTS.csv: draws of the bootstrap; default: 200."),
]
_PointsSeed = Annotated[
    int | None, typer.Option("--seed", min=0, help="With POINTS.csv: seed of the draws; default: 0.")
]
_FITTED = ("--drop", "--draws", "--seed", "--columns")
_USES = {"": ("--source",), "POINTS.csv": _FITTED}
"""Options of a prediction: by published constants, or by points."""


@app.command("laws")
def list_laws(as_json: Json = False) -> None:
    """List the laws that can be fitted: formula, how N and C are counted, source, published constants."""
    from assay.api import scaling
    from assay.cli.console import print_view
    from assay.report.laws import LawsView

    print_view(LawsView(scaling.laws().values()), as_json)


@app.command("fit")
def fit_law(
    points: Annotated[
        str,
        typer.Argument(
            metavar="POINTS.csv|STUDY", help="A file with loss and the columns that the law needs, or a study."
        ),
    ],
    law: _LawName = "hoffmann",
    drop: _Drop = 0,
    below: Annotated[
        str | None, typer.Option("--below", metavar="FLOPS", help="Fit only points with less compute; test the rest.")
    ] = None,
    every: Annotated[bool, typer.Option("--no-hold-out", help="Fit all points, and test nothing.")] = False,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="laplace|normal", help="Add profile intervals under this likelihood."),
    ] = None,
    draws: _Draws = 200,
    seed: _Seed = 0,
    columns: _Columns = None,
    as_json: Json = False,
) -> None:
    """Fit a law, with intervals by the bootstrap, and test it on the larger runs.

    All points are fitted. For the test the law is also fitted to the four fifths with the least compute, and predicts
    the others. With --below, the smaller points are the fit. A study is given by its id, its name, or last; the run
    that it holds out is the test. Headings have many known names, and may have units: Params (M), val_bpb, perplexity.
    Others are named by --columns, with a unit: a factor such as M or 1e18, and bits or perplexity of a loss.

    \b
        assay scaling fit points.csv
        assay scaling fit runs.csv --columns n=params_total,d=tokens_trained,loss=val_bpb:bits
        assay scaling fit points.csv --law kaplan-joint --drop 5
        assay scaling fit points.csv --below 1e20 --profile laplace
    """
    from assay.api import scaling
    from assay.cli.console import print_view

    found = scaling.fit(
        points,
        law=law,
        drop=drop,
        below_flops=None if below is None else count_of("--below", below),
        hold_out=not every,
        profile=cast("Likelihood | None", profile),
        draws=draws,
        seed=seed,
        columns=columns,
    )
    print_view(found, as_json)


@app.command("predict")
def predict_loss(
    points: Annotated[
        str | None, typer.Argument(metavar="[POINTS.csv]", help="Points to fit; default: published constants.")
    ] = None,
    law: _LawName = "hoffmann",
    source: Annotated[
        str | None, typer.Option("--source", help="Source of published constants; assay scaling laws lists them.")
    ] = None,
    params: _Params = None,
    tokens: _Tokens = None,
    flops: _Flops = None,
    min_flops: Annotated[str | None, typer.Option("--min-flops", metavar="COUNT", help="C_min.")] = None,
    min_steps: Annotated[str | None, typer.Option("--min-steps", metavar="COUNT", help="S_min.")] = None,
    unique: Annotated[
        str | None, typer.Option("--unique-tokens", metavar="COUNT", help="Tokens that differ, in repeated data.")
    ] = None,
    drop: _PointsDrop = None,
    draws: _PointsDraws = None,
    seed: _PointsSeed = None,
    columns: _Columns = None,
    far: Annotated[bool, typer.Option("--far", help="Answer beyond 10,000 times the fitted points too.")] = False,
    as_json: Json = False,
) -> None:
    """Predict a loss, with a 95 % interval, by a law that is fitted to points or by published constants.

    More than 100 times beyond the fitted points an answer is marked, and more than 10,000 times it is refused. With
    --flops alone, N and D are the law's optimum.

    \b
        assay scaling predict points.csv --params 70B --tokens 1.4T
        assay scaling predict --law kaplan-size --params 1B
    """
    from assay.api import scaling
    from assay.cli.console import print_view

    asked = {"parameters": ("--params", params), "tokens": ("--tokens", tokens), "flops": ("--flops", flops)}
    asked |= {"min_flops": ("--min-flops", min_flops), "min_steps": ("--min-steps", min_steps)}
    asked["unique_tokens"] = ("--unique-tokens", unique)
    counts = {name: None if text is None else count_of(option, text) for name, (option, text) in asked.items()}
    options = {"--drop": drop, "--draws": draws, "--seed": seed, "--columns": columns, "--source": source}
    check_used("" if points is None else "POINTS.csv", _USES, options)
    fitted = None if points is None else scaling.fit(points, law=law, hold_out=False, **arguments(options, *_FITTED))
    answer = scaling.predict(fitted or law, source=source, far=far, **counts)
    print_view(answer, as_json)


@app.command("isoflop")
def isoflop_optima(
    points: Annotated[str, typer.Argument(metavar="POINTS.csv", help="Runs of several sizes at each budget.")],
    draws: _Draws = 200,
    seed: _Seed = 0,
    columns: _Columns = None,
    as_json: Json = False,
) -> None:
    """Fit approach 2 of Hoffmann et al.: a parabola of the loss at each budget, and power laws through the minima.

    \b
        assay scaling isoflop points.csv
    """
    from assay.api import scaling
    from assay.cli.console import print_view

    print_view(scaling.isoflop(points, draws=draws, seed=seed, columns=columns), as_json)


@app.command("envelope")
def envelope_optima(
    curves: Annotated[
        str, typer.Argument(metavar="CURVES.csv", help="Columns parameters, tokens, loss, and run for equal sizes.")
    ],
    draws: _Draws = 200,
    seed: _Seed = 0,
    columns: _Columns = None,
    as_json: Json = False,
) -> None:
    """Fit approach 1 of Hoffmann et al.: the lower envelope of training curves, and power laws through its sizes.

    \b
        assay scaling envelope curves.csv
    """
    from assay.api import scaling
    from assay.cli.console import print_view

    print_view(scaling.envelope(curves, draws=draws, seed=seed, columns=columns), as_json)


app.command("optimal")(optimal_size)
app.command("batch")(batch_size)
