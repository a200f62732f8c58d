"""Where things are printed: data on standard output, everything else on standard error.

A table is drawn on a terminal, and is lines with tabs between the fields in a pipe. Under ``--json`` standard output
is exactly one JSON value; a figure that is not finite is null there.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from pydantic import BaseModel


def note(text: str) -> None:
    """A line for the person who waits."""
    typer.echo(text, err=True)


def plain(record: "BaseModel") -> Any:
    """A record as values that JSON can hold."""
    return json.loads(record.model_dump_json())


def print_json(value: Any) -> None:
    """The one value of a command's output."""
    typer.echo(json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = ()) -> None:
    """Rows under headings; columns named in `right` hold figures and are aligned so."""
    if not sys.stdout.isatty():
        for row in (columns, *rows):
            typer.echo("\t".join(row))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in set(right) else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(markup=False, highlight=False).print(table)
