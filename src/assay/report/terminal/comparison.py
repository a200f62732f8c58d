"""The table on a terminal: columns if there is room, a list if there is not, plain lines in a pipe.

A treatment is a heading, followed by its figures: measured, interval, predicted, proof. Wide terminals show the metrics
side by side, so that the eye can run down a column. Narrow ones and pipes show one metric per line.
"""

from typing import TYPE_CHECKING

from assay.analysis.comparison import Comparison
from assay.analysis.row import Row
from assay.records.evidence import BEGINNING_ONLY
from assay.report.footnotes import footnotes
from assay.report.wording import COLUMNS, Texts, by_rank, first_step, status, texts, value_check

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

WIDE = 116
"""Width of a terminal, in characters, from which the metrics are shown side by side."""
_STYLE = {"better": "green", "worse": "red", "neutral": "default"}
_WIDE_LABEL, _WIDE_COLUMN, _WIDE_LOSSES = 10, 24, 22
_NARROW_LABEL = 16


def print_comparison(comparison: Comparison, console: "Console") -> None:
    """Print the whole comparison: baselines, treatments, footnotes. A pipe gets plain, unwrapped lines."""
    rows = (comparison.baseline, comparison.again, *comparison.rows)
    if console.is_terminal and console.width >= WIDE:
        _print_wide(rows, console)
    else:
        _print_narrow(rows, console)
    for sentence in footnotes(comparison):
        console.print(sentence, style="dim", highlight=False, markup=False, soft_wrap=not console.is_terminal)


def _print_wide(rows: tuple[Row, ...], console: "Console") -> None:
    console.print(_side_by_side(console.width, "", [_text(column.title, "bold") for column in COLUMNS]))
    for row in rows:
        console.rule(style="dim")
        console.print(_heading(row))
        said = [texts(row, column) for column in COLUMNS]
        lines = [
            ("measured", [_measured(one) for one in said]),
            ("", [_text(one.interval or one.remark, "dim") for one in said]),
            ("", [_text(one.remark if one.interval else "", "dim") for one in said]),
            ("predicted", [_text(one.predicted, "cyan") for one in said]),
        ]
        for label, cells in lines:
            if any(cells):
                console.print(_side_by_side(console.width, label, cells))
        for label, sentence in _remarks(row):
            console.print(_labelled(label, sentence, _WIDE_LABEL))
    console.rule(style="dim")


def _print_narrow(rows: tuple[Row, ...], console: "Console") -> None:
    from rich.text import Text

    for row in rows:
        lines = [_heading(row)]
        for column in COLUMNS:
            one = texts(row, column)
            change = " ".join(filter(None, (one.change, one.interval, one.remark)))
            line = Text.assemble(f"{one.value:<15} ", (f"{change:<24} ", _STYLE[one.tone]))
            if one.predicted:
                line.append(f"predicted {one.predicted}", style="cyan")
            line.rstrip()
            if line:
                lines.append(Text.assemble((f"  {column.title:<{_NARROW_LABEL}}", "dim"), line))
        for line in lines:
            console.print(line, soft_wrap=not console.is_terminal)
        for label, sentence in _remarks(row):
            if console.is_terminal:
                console.print(_labelled(f"  {label}", sentence, _NARROW_LABEL + 1))
            else:
                console.print(Text(f"  {label:<{_NARROW_LABEL}}") + sentence, soft_wrap=True)
        console.print()


def _heading(row: Row) -> "Text":
    from rich.text import Text

    ending = status(row)
    return Text.assemble((row.treatment, "bold"), (f"  {ending}" if ending else "", "red"))


def _measured(one: Texts) -> "Text":
    from rich.text import Text

    return Text.assemble(one.value, "  " if one.value and one.change else "", (one.change, _STYLE[one.tone]))


def _remarks(row: Row) -> list[tuple[str, "Text"]]:
    """Return a row's remarks, each with its label: proofs, values, first step, ranks, then flags."""
    found = [
        ("proof", _text(f"✓ {item.observed}", "green"))
        if item.verdict
        else ("no proof", _text(f"✗ {item.observed}", "red"))
        for item in row.evidence
    ]
    if row.proven_until == "beginning":
        found.append(("proof", _text(BEGINNING_ONLY, "yellow")))
    if row.values is not None:
        good = row.values.checked and row.values.verdict
        mark, style = ("✓ ", "green") if good else ("", "yellow") if row.values.verdict else ("✗ ", "red")
        found.append(("values", _text(mark + value_check(row.values), style)))
    found += [("first step", _text(sentence, "dim")) for sentence in first_step(row)]
    found += [("ranks", _text(sentence, "dim")) for sentence in by_rank(row)]
    return found + [("caution", _text(f"! {flag}", "yellow")) for flag in row.flags]


def _side_by_side(width: int, label: str, cells: list["Text"]) -> "RenderableType":
    from rich.table import Table

    room = (width - _WIDE_LABEL - _WIDE_LOSSES - len(cells)) // (len(cells) - 1)
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=_WIDE_LABEL, style="dim")
    for _ in cells[:-1]:
        grid.add_column(width=min(room, _WIDE_COLUMN), no_wrap=True)
    grid.add_column(width=_WIDE_LOSSES, no_wrap=True)
    grid.add_row(label, *cells)
    return grid


def _labelled(label: str, sentence: "Text", width: int) -> "RenderableType":
    from rich.table import Table

    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=width, style="dim")
    grid.add_column(overflow="fold")
    grid.add_row(label, sentence)
    return grid


def _text(text: str, style: str) -> "Text":
    from rich.text import Text

    return Text(text, style=style)
