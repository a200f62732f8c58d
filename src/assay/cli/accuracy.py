"""`assay accuracy`: the errors of earlier predictions."""

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.options import Json

_Page = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the errors as a page, too.")]


def accuracy(page: _Page = None, as_json: Json = False) -> None:
    """Compare predictions with measurements.

    The records of all runs in $ASSAY_HOME are read, and nothing is written there. Errors of peak memory and of step
    time are listed by device and by technique.

    \b
        assay accuracy
        assay accuracy --page accuracy.html

    Exit codes: 0 done; 2 wrong input.
    """
    from assay import api
    from assay.cli.console import print_view
    from assay.report.kit.view import check_page

    if page is not None:
        check_page(page)
    found = api.accuracy()
    written = None if page is None else str(api.write_accuracy(found, page))
    print_view(found, as_json, page=written)
    if written is not None and not as_json:
        typer.echo(written)
