"""The table on a terminal: columns if there is room, a list if there is not, plain lines in a pipe.

A treatment is a heading, followed by its figures: measured, interval, predicted, proof. Wide terminals show the metrics
side by side, so that the eye can run down a column. Narrow ones and pipes show one metric per line.
"""

from typing import TYPE_CHECKING

from assay.analysis.comparison import Comparison
from assay.analysis.metrics import Metric
from assay.analysis.row import Row
from assay.report.footnotes import footnotes
from assay.report.wording import Texts, by_rank, columns, first_step, not_proven, status, texts, value_check

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

_STYLE = {"better": "green", "worse": "red", "neutral": "default"}
_WIDE_LABEL, _WIDE_COLUMN, _WIDE_LOSSES, _WIDE_MARGIN = 10, 24, 22, 3
_LEAST_COLUMN = 19
_NARROW_LABEL = 16


def print_comparison(comparison: Comparison, console: "Console") -> None:
    """Print the whole comparison: baselines, treatments, footnotes. A pipe gets plain, unwrapped lines."""
    rows = (comparison.baseline, comparison.again, *comparison.rows)
    shown = columns(comparison.run)
    if console.is_terminal and console.width >= wide(shown):
        _print_wide(rows, shown, console)
    else:
        _print_narrow(rows, shown, console)
    for sentence in footnotes(comparison):
        console.print(sentence, style="dim", highlight=False, markup=False, soft_wrap=not console.is_terminal)


def wide(shown: list[Metric]) -> int:
    """Return the width of a terminal, in characters, from which the metrics are shown side by side."""
    widths = (_WIDE_LOSSES if metric.kind == "loss" else _LEAST_COLUMN for metric in shown)
    return _WIDE_LABEL + _WIDE_MARGIN + sum(1 + width for width in widths)


def _print_wide(rows: tuple[Row, ...], shown: list[Metric], console: "Console") -> None:
    widths = _widths(shown, console.width)
    console.print(_side_by_side(widths, "", [_text(metric.title, "bold") for metric in shown]))
    for row in rows:
        console.rule(style="dim")
        console.print(_heading(row))
        said = [texts(row, metric) for metric in shown]
        lines = [
            ("measured", [_measured(one) for one in said]),
            ("", [_text(one.interval or one.remark, "dim") for one in said]),
            ("", [_text(one.remark if one.interval else "", "dim") for one in said]),
            ("predicted", [_text(one.predicted, "cyan") for one in said]),
            ("", [_text(one.basis, "cyan") for one in said]),
        ]
        for label, cells in lines:
            if any(cells):
                console.print(_side_by_side(widths, label, cells))
        for label, sentence in _remarks(row):
            console.print(_labelled(label, sentence, _WIDE_LABEL))
    console.rule(style="dim")


def _print_narrow(rows: tuple[Row, ...], shown: list[Metric], console: "Console") -> None:
    from rich.text import Text

    width = max(_NARROW_LABEL, *(1 + len(metric.title) for metric in shown))
    for row in rows:
        lines = [_heading(row)]
        for metric in shown:
            one = texts(row, metric)
            change = " ".join(filter(None, (one.change, one.interval, one.remark)))
            line = Text.assemble(f"{one.value:<15} ", (f"{change:<24} ", _STYLE[one.tone]))
            if one.predicted:
                line.append(f"predicted {one.predicted} {one.basis}", style="cyan")
            line.rstrip()
            if line:
                lines.append(Text.assemble((f"  {metric.title:<{width}}", "dim"), line))
        for line in lines:
            console.print(line, soft_wrap=not console.is_terminal)
        for label, sentence in _remarks(row):
            if console.is_terminal:
                console.print(_labelled(f"  {label}", sentence, width + 1))
            else:
                console.print(Text(f"  {label:<{width}}") + sentence, soft_wrap=True)
        console.print()


def _heading(row: Row) -> "Text":
    from rich.text import Text

    ending, unproven = status(row), not_proven(row)
    parts = (f"  {ending}" if ending else "", "red"), (f"  not proven: {unproven}" if unproven else "", "yellow")
    return Text.assemble((row.treatment, "bold"), *parts)


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
    if row.values is not None:
        good = row.values.checked and row.values.verdict
        mark, style = ("✓ ", "green") if good else ("✗ ", "red") if row.values.failures else ("", "yellow")
        found.append(("values", _text(mark + value_check(row.values), style)))
    found += [("first step", _text(sentence, "dim")) for sentence in first_step(row)]
    found += [("ranks", _text(sentence, "dim")) for sentence in by_rank(row)]
    return found + [("caution", _text(f"! {flag}", "yellow")) for flag in row.flags]


def _widths(shown: list[Metric], width: int) -> list[int]:
    """Widths of columns in a terminal: losses have a fixed one, the others share the room that is left."""
    losses = sum(metric.kind == "loss" for metric in shown)
    room = (width - _WIDE_LABEL - losses * _WIDE_LOSSES - len(shown)) // (len(shown) - losses)
    return [_WIDE_LOSSES if metric.kind == "loss" else min(room, _WIDE_COLUMN) for metric in shown]


def _side_by_side(widths: list[int], label: str, cells: list["Text"]) -> "RenderableType":
    from rich.table import Table

    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=_WIDE_LABEL, style="dim")
    for width in widths:
        grid.add_column(width=width, no_wrap=True)
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
