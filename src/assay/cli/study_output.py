"""The answer of a study, run or predicted: its progress, its page, its table or JSON, and the exit code."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.errors import UsageError
from assay.records.status import Exit

if TYPE_CHECKING:
    from assay.analysis.comparison import Comparison
    from assay.api.result_types import PredictedAnswer
    from assay.report import View
    from assay.report.study.view import StudyView

Full = Annotated[bool, typer.Option("--full", help="Print every figure with its interval, and all sections.")]
FailOn = Annotated[
    str | None,
    typer.Option("--fail-on", metavar="refuted", help="End with exit code 5 if an expectation is refuted."),
]


def finish(
    ask: "Callable[..., Comparison]",
    page: Path | None,
    as_json: bool,
    track: list[str] | None = None,
    fail_on: str | None = None,
    full: bool = False,
) -> None:
    """Run a study with its progress, print the answer, and exit with its code."""
    from assay.cli.options import copying, show_how_to_look
    from assay.cli.signals import deaf
    from assay.config import Home
    from assay.report import view
    from assay.report.kit.view import check_page, write_page

    home = Home()
    check_fail_on(fail_on)
    if page is not None:
        check_page(page)  # before hours are spent on its content
    with copying(track, home) as copies:
        comparison = _watched(copies.beside(partial(ask, home=home)))
    with deaf():
        shown = view(comparison)
        print_answer(shown, write_page(shown, home, page), as_json, full)
        show_how_to_look(copies)
    if comparison.interrupted or comparison.failed:
        raise typer.Exit(Exit.INTERRUPTED if comparison.interrupted else Exit.NO_RESULT)
    raise typer.Exit(unmet(comparison, fail_on))


def check_fail_on(fail_on: str | None) -> None:
    """Raise `UsageError` for an outcome on which no verb fails."""
    if fail_on not in (None, "refuted"):
        raise UsageError(f"--fail-on {fail_on} is not possible; it takes refuted")


def unmet(comparison: "Comparison", fail_on: str | None) -> Exit:
    """Return the exit code for refuted expectations, if it was asked for; each is said in a line."""
    from assay.cli.console import note
    from assay.report.study.sections.stated import refuted_expectations

    found = refuted_expectations(comparison) if fail_on is not None else []
    for one in found:
        note(f"assay: refuted: {one}")
    return Exit.UNMET if found else Exit.DONE


def _watched(measure: "Callable[..., Comparison]") -> "Comparison":
    from assay.report.comparison.progress import watcher

    with watcher() as watch:
        return measure(on_progress=watch.prepare, on_news=watch)


def print_answer(shown: "View", page: Path | None, as_json: bool, full: bool = False) -> None:
    """Print a study's answer with its small table or, in full, all of its report; last is the path of its page.

    As JSON, it is one value with everything.
    """
    from assay.cli.console import print_json
    from assay.report.study.view import StudyView

    if as_json:
        print_json({**shown.values(), "page": None if page is None else str(page)})
        return
    if full or not isinstance(shown, StudyView):
        _print_all(shown)
    else:
        _print_first(shown)
    if page is not None:
        _print_page(page)


def _print_first(study: "StudyView") -> None:
    """Print the sentences, the small table, cautions, and what to run next."""
    from assay.report.kit.blocks import legible_console
    from assay.report.study.sections.answer import hints, no_answer
    from assay.report.study.summary import print_summary

    console = legible_console()
    for place, sentence in enumerate(study.sentences or (no_answer(study.comparison),)):
        text = sentence.replace(" %", "\N{NO-BREAK SPACE}%") if console.is_terminal else sentence
        style = "" if place else "bold"
        console.print(text, style=style, highlight=False, markup=False, soft_wrap=not console.is_terminal)
    console.print()
    print_summary(study, console)
    for hint in ("", *hints(study), f"assay study show {study.comparison.record.id} --full    prints every figure"):
        console.print(hint, highlight=False, markup=False, soft_wrap=True)


def _print_all(shown: "View") -> None:
    from assay.cli.console import print_blocks
    from assay.report.comparison.row_table import print_comparison
    from assay.report.kit.blocks import Facts, legible_console

    if shown.table is not None:
        print_comparison(shown.table, legible_console())
    print_blocks(shown.printed())
    print_blocks([Facts.of(shown.closing())])


def _print_page(page: Path) -> None:
    """Print the path of a page; a terminal makes it a link that opens."""
    from rich.text import Text

    from assay.report.kit.blocks import legible_console

    console = legible_console()
    link = f"link {page.as_uri()}" if console.is_terminal else ""
    console.print(Text(str(page), link), soft_wrap=True)


def print_predicted(ask: "Callable[..., PredictedAnswer]", page: Path | None, as_json: bool) -> None:
    """Predict a study and print it; with `page`, write its page and print the path last."""
    from assay.cli.console import note, print_view
    from assay.report.kit.view import check_page

    if page is not None:
        check_page(page)
    found = ask(on_progress=lambda text, share: note(text))
    written = None
    if page is not None:
        from assay.report.study.predicted import write_predicted_page

        written = str(write_predicted_page(found, page))
    print_view(found, as_json, page=written)
    if written is not None and not as_json:
        typer.echo(written)
