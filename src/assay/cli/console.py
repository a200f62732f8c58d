"""Printing: data on standard output, everything else on standard error, and both made usable.

A table is drawn on a terminal; in a pipe it is lines with tabs between the fields. Under ``--json`` standard output is
exactly one JSON value, in which figures that are not finite are null. Texts of records may come from anywhere, so no
character of them steers the terminal.

A process may be started with closed standard streams. Python then sets them to None, and the next file that is opened
gets their number, so that printed text would end up in it. The null device takes those numbers first. Characters that
an encoding lacks are spelled out.
"""

import codecs
import json
import os
import sys
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import typer

from assay.errors import legible
from assay.platforms import writable
from assay.units import json_text

if TYPE_CHECKING:
    from rich.table import Table

    from assay.report.kit.blocks import Block

_LABEL = 12
"""Width of the labels of facts, in characters."""
_SPELLED = {
    "−": "-", "–": "-", "×": "x", "·": "-", "…": "...", "→": "->", "←": "<-", "≤": "<=", "≥": ">=", "±": "+-",
    "µ": "u", "✓": "yes", "✗": "no", "▶": ">", "—": "-", "Σ": "sum", "β": "beta", "λ": "lambda", "ε": "epsilon",
    "█": "#",
}  # fmt: skip
"""Characters of this package's own texts in ASCII; every other character is written as an escape."""
_ERRORS = "assay.spelled"


def note(text: str) -> None:
    """Print a line on standard error for the user who waits."""
    typer.echo(legible(text), err=True)


def print_json(value: Any) -> None:
    """Print the one JSON value of a command's output."""
    text = json_text(value, indent=1, ensure_ascii=False)
    typer.echo("\n".join(line if line.isprintable() else _escaped(line) for line in text.split("\n")))


def print_view(value: Any, as_json: bool, **more: Any) -> None:
    """Print what a reader is shown of a value, or its one JSON value with `more` of it."""
    from assay.report import view

    shown = view(value)
    if as_json:
        print_json({**shown.values(), **more} if more else shown.values())
    else:
        print_blocks(shown.blocks())


def print_blocks(blocks: "Iterable[Block]") -> None:
    """Print the parts of a report one after the other."""
    from assay.report.kit.blocks import Facts, Table

    for block in blocks:
        if isinstance(block, Table):
            print_table(block.columns, block.rows, block.right, block.spare)
        elif isinstance(block, Facts):
            width = max([_LABEL, *(len(label) + 2 for label, _ in block.rows)])
            for label, text in block.rows:
                typer.echo(legible(f"{label:<{width}}{text}"))
        else:
            typer.echo(legible(block))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = (), spare: Sequence[str] = ()
) -> None:
    """Print rows under headings; columns named in `right` hold figures and are aligned right.

    On a terminal that is too narrow, columns named in `spare` are left out, in that order, until the rest fits. If it
    never does, the names of the rows are folded.
    """
    columns, *whole = (tuple(map(legible, row)) for row in (columns, *rows))
    if not sys.stdout.isatty():
        typer.echo("\n".join("\t".join(line) for line in (columns, *whole)))
        return
    from rich.console import Console

    console = Console(markup=False, highlight=False)
    shown = list(range(len(columns)))
    aligned = set(right)

    def fits(table: "Table") -> bool:
        return console.measure(table, options=console.options.update(max_width=10_000)).maximum <= console.width

    table = _table(columns, whole, shown, aligned)
    for column in spare:
        if fits(table):
            break
        shown.remove(columns.index(column))
        table = _table(columns, whole, shown, aligned)
    console.print(table if fits(table) else _table(columns, whole, shown, aligned, folded=True))


def _table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    shown: Sequence[int],
    right: Container[str],
    *,
    folded: bool = False,
) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index in shown:
        aligned: Literal["right", "left"] = "right" if columns[index] in right else "left"
        table.add_column(columns[index], justify=aligned, overflow="fold", no_wrap=index == 0 and not folded)
    for row in rows:
        table.add_row(*(row[index] for index in shown))
    return table


def _escaped(line: str) -> str:
    """Return a line of JSON with escapes for characters that would steer a terminal; it has the same value."""
    return "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in line)


def settle() -> bool:
    """Make the three standard streams usable. Returns False if standard output cannot be written."""
    printable = writable(1)
    _fill_closed()
    codecs.register_error(_ERRORS, _spell)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_ERRORS)
    return printable


def silence() -> None:
    """Send standard output to the null device, after the reader of a pipe has closed it."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fill_closed() -> None:
    """Open the null device under each number below 3 that is free, and create the streams that Python lacks."""
    while (number := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _spell(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that an encoding lacks; Python calls this if a character cannot be written."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_SPELLED.get(one) or ascii(one)[1:-1] for one in lacking), error.end
