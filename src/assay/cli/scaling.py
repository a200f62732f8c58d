"""`assay scaling`: fit a scaling law to points of trained models, and ask laws how large and how long."""

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from assay.cli import scaling_study
from assay.cli.options import Json, arguments, check_used, count_of
from assay.errors import UsageError

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
_Grow = Annotated[str | None, typer.Option("--grow", metavar="TIMES", help="How N and D grow with TIMES the compute.")]
_Points = Annotated[
    str | None, typer.Option("--points", metavar="POINTS.csv", help="Ask a law that is fitted to these points as well.")
]
_Law = Annotated[
    str, typer.Option("--law", metavar="NAME", help="With --points: the law; assay scaling laws lists them.")
]
_LawDrop = Annotated[int, typer.Option(min=0, help="With --points: leave out so many points with the highest losses.")]
_LawColumns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="n=HEADING:UNIT,…",
        help="With --points: columns of the file: n, d, c, loss, u, c_min, s_min.",
    ),
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
_BATCH_USES = {"": (), "RUN": ("--micro-batches", "--sequences")}
"""Options of a critical batch size: by figures, or by the gradients of a run."""
_Far = Annotated[bool, typer.Option("--far", help="Answer beyond 10,000 times the fitted compute.")]


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


@app.command("optimal")
def optimal_size(
    flops: _Flops = None,
    params: _Params = None,
    tokens: _Tokens = None,
    grow: _Grow = None,
    points: _Points = None,
    law: _Law = "hoffmann",
    drop: _LawDrop = 0,
    columns: _LawColumns = None,
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
        assay scaling optimal --flops 1e21 --points runs.csv --columns n=params_total,d=tokens_trained,loss=val_bpb:bits
        assay scaling optimal --params 70B --device h100 --devices 1024 --price 2.5
        assay scaling optimal --flops 1e23 --tokens-per-parameter 200 --inference-tokens 1T
        assay scaling optimal --grow 10 --params 124M --tokens 10B
    """
    from assay.api import scaling
    from assay.cli.console import print_view

    options = {"--flops": flops, "--params": params, "--tokens": tokens, "--grow": grow}
    options |= {"--tokens-per-parameter": tokens_per_parameter, "--inference-tokens": inference_tokens}
    counts = {name: None if text is None else count_of(name, text) for name, text in options.items()}
    asked: dict[str, Any] = {
        "flops": counts["--flops"], "parameters": counts["--params"], "tokens": counts["--tokens"],
        "points": points, "law": law, "drop": drop, "columns": columns, "far": far,
    }  # fmt: skip
    further: dict[str, Any] = {
        "tokens_per_parameter": counts["--tokens-per-parameter"], "inference_tokens": counts["--inference-tokens"],
        "device": device, "devices": devices, "mfu": mfu, "price": price,
    }  # fmt: skip
    times = counts["--grow"]
    if times is not None and any(one is not None for one in further.values()):
        raise UsageError("--grow goes with --flops, --params, --tokens, --points and --far only; ask the rest alone")
    found = scaling.optimal(**asked, **further) if times is None else scaling.growth(times, **asked)
    print_view(found, as_json)


@app.command("batch")
def batch_size(
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Measure the noise scale at this run's newest checkpoint.")
    ] = None,
    noise: Annotated[
        str | None, typer.Option("--noise", metavar="COUNT", help="A noise scale, in sequences or tokens.")
    ] = None,
    noise_error: Annotated[
        str | None, typer.Option("--noise-error", metavar="COUNT", help="Standard error of --noise.")
    ] = None,
    loss: Annotated[
        float | None, typer.Option("--loss", metavar="NATS", help="A loss, by Kaplan et al. 2020; batches in tokens.")
    ] = None,
    measured: Annotated[
        str | None,
        typer.Option("--measured", metavar="FILE.csv", help="Columns batch and steps: steps to one loss, measured."),
    ] = None,
    params: Annotated[
        str | None,
        typer.Option("--params", metavar="COUNT", help="Predict the loss of a run with --steps and --batch-size."),
    ] = None,
    steps: Annotated[str | None, typer.Option("--steps", metavar="COUNT", help="Steps of the present run.")] = None,
    batch_size: Annotated[
        str | None, typer.Option("--batch-size", metavar="COUNT", help="Batch size of the present run.")
    ] = None,
    step_seconds: Annotated[
        float | None, typer.Option("--step-seconds", help="Seconds of a step of the present run.")
    ] = None,
    batches: Annotated[
        str | None, typer.Option("--batches", metavar="B,B,...", help="Batch sizes; default: powers of two around it.")
    ] = None,
    micro_batches: Annotated[
        int | None,
        typer.Option(min=2, max=1000, metavar="N", help="With RUN: number of micro-batches; default: 8."),
    ] = None,
    sequences: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="With RUN: sequences of each; default: its batch size.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the critical batch size, and the steps and examples that batch sizes take to the same loss.

    Up to the critical batch size larger batches save steps at little cost in examples. Beyond it they save few steps.

    \b
        assay scaling batch last --micro-batches 32
        assay scaling batch --noise 512 --steps 20k --batch-size 64 --step-seconds 0.4
        assay scaling batch --loss 3.2
        assay scaling batch --params 1B --steps 100k --batch-size 512k
    """
    from assay.api.batch import batch
    from assay.cli.console import print_view
    from assay.cli.progress import watcher

    options = {"--noise": noise, "--noise-error": noise_error, "--params": params, "--steps": steps}
    options["--batch-size"] = batch_size
    of_run = {"--micro-batches": micro_batches, "--sequences": sequences}
    check_used("" if run is None else "RUN", _BATCH_USES, of_run)
    counts = {name: None if text is None else count_of(name, text) for name, text in options.items()}
    with watcher() as watch:

        def tell(message: str, fraction: float | None) -> None:
            watch({"event": "prepare", "message": message, "fraction": fraction})

        found = batch(
            run,
            noise=counts["--noise"],
            noise_error=counts["--noise-error"],
            loss=loss,
            measured=measured,
            parameters=counts["--params"],
            steps=counts["--steps"],
            batch_size=counts["--batch-size"],
            step_seconds=step_seconds,
            batches=None if batches is None else [count_of("--batches", one) for one in batches.split(",")],
            **arguments(of_run, *of_run),
            on_progress=tell,
        )
    print_view(found, as_json)
