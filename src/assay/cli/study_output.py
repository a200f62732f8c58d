"""The answer of a study: run it with its progress, write its page, print its table, and exit with its code."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.errors import UsageError
from assay.records.status import Exit

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.analysis.comparison import Comparison
    from assay.report import View


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
) -> None:
    """Run a study with its progress, print the answer, and exit with its code."""
    from assay.cli.signals import deaf
    from assay.cli.track_option import copying, show_how_to_look
    from assay.config import Home
    from assay.report import view
    from assay.report.kit.page import check_page, write_page

    home = Home()
    check_fail_on(fail_on)
    if page is not None:
        check_page(page)  # before hours are spent on its content
    with copying(track, home) as copies:
        comparison = _watched(copies.beside(partial(ask, home=home)))
    with deaf():
        shown = view(comparison)
        print_answer(shown, write_page(shown, home, page), as_json)
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


def print_answer(shown: "View", page: Path | None, as_json: bool) -> None:
    """Print a study's table, its sections, its last lines and the path of its page, or one JSON value with all."""
    from assay.cli.console import print_blocks, print_json
    from assay.report.blocks import Facts
    from assay.report.comparison.row_table import print_comparison
    from assay.report.kit.terminal import legible_console

    if as_json:
        print_json({**shown.values(), "page": None if page is None else str(page)})
        return
    if shown.table is not None:
        print_comparison(shown.table, legible_console())
    print_blocks(shown.printed())
    print_blocks([Facts.of(shown.closing())])
    if page is not None:
        typer.echo(str(page))
