"""`assay scaling run`, `points` and `report`: a law from runs of one's own."""

from typing import Annotated

import typer

from assay.cli.options import Json, Overrides, Page, Source, check_used, seconds_of
from assay.cli.study_output import finish, print_answer

_USES = {"": ("--executor", "--page"), "--plan": ()}
_Study = Annotated[str, typer.Argument(metavar="STUDY", help="A study: its id, the start of one, its name, or last.")]


def run_study(
    source: Source = None,
    overrides: Overrides = None,
    budget: Annotated[str, typer.Option(metavar="TIME", help="Time in which the study ends: 2h, 25min.")] = "1h",
    only_plan: Annotated[bool, typer.Option("--plan", help="Print the plan, and train nothing.")] = False,
    widths: Annotated[
        str | None, typer.Option(metavar="N,N,…", help="Widths of the models; default: multiples of a head.")
    ] = None,
    ratio: Annotated[
        float | None,
        typer.Option(metavar="D/N", help="Tokens per parameter around which sizes are chosen; default: 60."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=100, help="Seeds of each fitted run; default: 3.")
    ] = None,
    branches: Annotated[
        bool, typer.Option("--branches", help="Make the fitted runs of a size decay branches of the longest one.")
    ] = False,
    executor: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where the runs go: local, ray, slurm; default: local.")
    ] = None,
    page: Page = None,
    as_json: Json = False,
) -> None:
    """Train sizes of a model at several budgets of FLOPs, fit a law, and test it on a run of ten times the compute.

    \b
        assay scaling run scaling-stdlib --budget 25min --plan
        assay scaling run scaling-stdlib --budget 25min
        assay scaling run scaling-stdlib --budget 25min --branches      several lengths from one run of each size
        assay study resume last                                         after a Ctrl-C

    The configuration is the largest model. Smaller ones keep its aspect ratio and the width of its heads, and their
    learning rate follows a rule that the study tests. Exit codes are those of `assay compare`.
    """
    from functools import partial

    from assay.api import scaling_study
    from assay.cli.console import print_view
    from assay.report.comparison.progress import watcher

    check_used("--plan" if only_plan else "", _USES, {"--executor": executor, "--page": page})
    with watcher() as watch:
        found = scaling_study.plan(
            source,
            *(overrides or ()),
            budget_seconds=seconds_of("--budget", budget),
            widths=None if widths is None else _widths(widths),
            tokens_per_parameter=ratio,
            seeds=seeds,
            branches=branches,
            on_progress=watch.prepare,
        )
    if only_plan or not as_json:
        print_view(found, as_json)
    if not only_plan:
        finish(partial(scaling_study.start, found, executor=executor or "local"), page, as_json)


def study_points(
    study: _Study,
    every: Annotated[
        bool, typer.Option("--all", help="Also runs that test the learning rate, and are in no law.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print size, tokens, FLOPs and loss of every run of a study as CSV, which `assay scaling fit` reads."""
    from assay.api.scaling_study import points
    from assay.cli.console import print_json
    from assay.errors import legible

    found = points(study) if every else points(study).of_law
    if as_json:
        print_json([vars(one) for one in found])
    else:
        typer.echo(legible(found.to_csv()), nl=False)


def study_report(study: _Study, page: Page = None, as_json: Json = False) -> None:
    """Print the answer of a study of scaling, and write its page anew from the record."""
    from assay.api.scaling_study import answer
    from assay.config import Home
    from assay.report import view
    from assay.report.kit.view import write_page

    shown = view(answer(study))
    print_answer(shown, write_page(shown, Home(), page), as_json)


def _widths(text: str) -> tuple[int, ...]:
    from assay.errors import UsageError, short_text

    try:
        return tuple(sorted({int(one) for one in text.split(",")}))
    except ValueError:
        raise UsageError(f"--widths is {short_text(text)}; write whole numbers such as 32,48,64") from None
