"""The answer of `assay compare --device` and `assay study run --predicted`: printed, as JSON, and as a page."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from assay.api.result_types import PredictedAnswer


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
