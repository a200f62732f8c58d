"""The table of a comparison: as plain rows, on a terminal as wide as it is, and with sentences below.

A treatment is a heading, followed by its figures: measured, interval, predicted, proof. Wide terminals show the metrics
side by side, so that the eye can run down a column. Narrow ones and pipes show one metric per line.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from assay.analysis.comparison import Comparison
from assay.analysis.metrics import Metric
from assay.analysis.metrics.standard import STEP_SECONDS
from assay.analysis.row import Row, seeds_of
from assay.proofs.mispredicted import differing_text
from assay.records.study import BASELINE
from assay.report.comparison.wording import (
    Texts,
    by_rank,
    columns,
    fine_percent,
    first_step,
    not_proven,
    prediction_error,
    status,
    texts,
    value_check,
    waits_for,
)
from assay.report.kit.blocks import Block, Table
from assay.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text


def comparison_report(comparison: Comparison) -> Iterator[Block]:
    """Yield the table, the sentences on each row, and the footnotes."""
    yield rows_table(comparison)
    for row in _rows(comparison):
        yield from (f"{row.label}: {sentence}" for sentence in _sentences(row))
    yield from footnotes(comparison)


def rows_table(comparison: Comparison) -> Table:
    """Return the table of all rows: the baseline, its second run, and the treatments, with all metrics."""
    shown = columns(comparison.run)
    titles = [metric.title for metric in shown]
    return Table.of(("", *titles), [_row(row, shown) for row in _rows(comparison)], titles)


def _rows(comparison: Comparison) -> tuple[Row, ...]:
    return (comparison.baseline, comparison.again, *comparison.rows)


def _row(row: Row, shown: list[Metric]) -> tuple[str, ...]:
    ending = status(row)
    return (f"{row.label} ({ending})" if ending else row.label, *(_cell(row, metric) for metric in shown))


def _cell(row: Row, metric: Metric) -> str:
    one = texts(row, metric)
    return " ".join(filter(None, (one.value, one.change, one.interval, one.remark)))


def _sentences(row: Row) -> Iterator[str]:
    if unproven := not_proven(row):
        yield f"not proven: {unproven}"
    yield from (f"{'proven' if one.verdict else 'NO EFFECT'}, {one.observed}" for one in row.evidence)
    if row.values is not None:
        yield value_check(row.values)
    yield from (f"caution, {flag}" for flag in row.flags)


def footnotes(comparison: Comparison) -> list[str]:
    """Return all footnotes: method, smallest change, predictions with errors and load, missing figures, caveats."""
    untold = (_traced(comparison), _unpredicted(comparison))
    errors = (_prediction_errors(comparison), _differing_blocks(comparison))
    predicted = (*untold, *errors, _predicted_under_load(comparison))
    measured = (_smallest_change(comparison), *predicted, _scratch(comparison), _missing(comparison))
    found = [method_of(comparison), _evaluated_on(comparison), *measured]
    return [sentence for sentence in (comparison.record.started_from, *found, *comparison.caveats) if sentence]


def method_of(comparison: Comparison) -> str:
    """Return the sentence on what changes are relative to, and what brackets are."""
    record = comparison.record
    each = f", each timed {record.protocol.blocks} times, in turns" if record.timed else ""
    means = "Its times are means of both, and baseline (again)" if record.timed else "Baseline (again)"
    return (
        f"Changes are relative to both runs of the baseline ({size(comparison)}{each}). {means} is compared with the "
        "first run alone. Brackets are intervals in percent over runs; all intervals of a column hold together in "
        "95 % of comparisons."
    )


def _evaluated_on(comparison: Comparison) -> str:
    """Sentence on the part of the held-out text that losses are measured on; empty if it is all of it."""
    parts = {comparison.names[one.cell.treatment]: one.cell.run.data.evaluate_on for one in comparison.record.cells}
    if set(parts.values()) == {"held-out"}:
        return ""
    if len(set(parts.values())) == 1:
        return f"Validation losses are those of the {next(iter(parts.values()))} split."
    return f"Validation losses are those of different texts, and cannot be compared: {list_rows(parts)}."


def size(comparison: Comparison) -> str:
    """Return ``"3 runs of each over 3 seeds"``, or ``"at most 1 of 3 …"`` if no row has more that finished."""
    planned = comparison.record.planned
    most = max(row.finished for row in (comparison.baseline, comparison.again, *comparison.rows))
    part = "" if most == planned else f"at most {most} of "
    if planned == len(comparison.record.seeds) == 1 == most:
        return "1 run of each, on one seed"
    return f"{part}{planned} run{'s' if planned > 1 else ''} of each over {seeds(comparison)}"


def seeds(comparison: Comparison) -> str:
    """Return ``"3 seeds"``, or ``"2 of 3 seeds"`` if the baseline, which every change is against, finished at two."""
    planned = len(comparison.record.seeds)
    finished = len(seeds_of(comparison.record.of(BASELINE)))
    return f"{'' if finished == planned else f'{finished} of '}{planned} seed{'s' if planned > 1 else ''}"


def _smallest_change(comparison: Comparison) -> str:
    """Sentence on the smallest change of each timed metric but rates, and of the loss, that can be told from none."""
    titles = {metric.name: metric.title for metric in columns(comparison.run) if metric.per_step is None}
    parts = [
        f"{titles[name]} {100 * one.told:.2g} % "
        f"(a true change of {100 * one.likely:.2g} % is found in four of five comparisons)"
        for name, one in comparison.resolution.items()
        if name in titles
    ]
    if not parts:
        return (
            ""
            if not comparison.record.timed
            else "Too few runs for intervals of times: give more --seeds or --processes."
        )
    step = comparison.resolution.get(STEP_SECONDS.name)
    deviation = (
        f" Step times of equal runs deviate by {100 * step.deviation:.2g} % ({step.degrees} degrees of freedom)."
        if step
        else ""
    )
    return f"Smallest change that can be distinguished from none: {'; '.join(parts)}.{deviation}"


def _traced(comparison: Comparison) -> str:
    """Sentence on traced predictions; empty if there are none."""
    if not any(row.predicted and row.predicted.traced for row in (comparison.baseline, *comparison.rows)):
        return ""
    return "A traced peak is that of the program itself on tensors that have shapes and no memory."


def _unpredicted(comparison: Comparison) -> str:
    """Sentence on the rows of which nothing is predicted, each with the reason; empty if there are none."""
    rows = (comparison.baseline, *comparison.rows)
    told = {row.label: row.predicted.refused for row in rows if row.predicted and row.predicted.refused}
    return f"Not predicted: {list_rows(told)}." if told else ""


def _prediction_errors(comparison: Comparison) -> str:
    errors = {row.label: prediction_error(row) for row in (comparison.baseline, *comparison.rows)}
    told = {name: fine_percent(error) for name, error in errors.items() if error is not None}
    return f"Error of the predicted peak of tensors: {list_rows(told)}." if told else ""


def _differing_blocks(comparison: Comparison) -> str:
    """Sentence on the blocks by which measured peaks differ, on a GPU; empty if none do."""
    told: dict[str, str] = {}
    for one in comparison.record.cells:
        predicted, measured = one.result.predicted, one.result.memory.peak_blocks
        if predicted is not None and (text := differing_text(measured, predicted.peak_blocks)):
            told.setdefault(comparison.names[one.cell.treatment], text)
    return f"Against its prediction, a measured peak has: {list_rows(told)}." if told else ""


def _predicted_under_load(comparison: Comparison) -> str:
    found = [one.result.predicted for one in comparison.record.cells]
    # Older records of studies without times have the load, and no time that it could have widened.
    if not any(one is not None and one.under_load and one.step_seconds for one in found):
        return ""
    return "Other programs worked while steps were timed for the predictions, so these have wider margins."


def _scratch(comparison: Comparison) -> str:
    """Sentence on the rows in which a library took scratch; empty if there are none."""
    taken = {row.label: row.metrics.get("library_scratch_bytes") for row in (comparison.baseline, *comparison.rows)}
    told = {name: format_bytes(most) for name, most in taken.items() if isinstance(most, int) and most}
    if not told:
        return ""
    return f"Peak of library scratch from torch's allocator, which is not part of the tensors: {list_rows(told)}."


def _missing(comparison: Comparison) -> str:
    """Sentence on the columns that the system of some run does not tell; empty if there are none."""
    told = {
        metric.title: reason
        for one in comparison.record.cells
        for name, reason in one.result.missing.items()
        for metric in columns(comparison.run)
        if metric.name == name.rpartition(".")[2]
    }
    return f"Not measured: {'; '.join(f'{title} ({reason})' for title, reason in told.items())}." if told else ""


def list_rows(told: Mapping[str, str]) -> str:
    """Return the text of each row; a text that more than four rows share is said once."""
    counts = Counter(told.values())
    if len(counts) == 1 and len(told) > 1:
        return f"{next(iter(counts))} in each of {len(told)} rows"
    shared = {text for text, count in counts.items() if count > _MANY}
    parts = [f"{name} {text}" for name, text in told.items() if text not in shared]
    return "; ".join([*parts, *(f"{text} in each of {counts[text]} other rows" for text in counts if text in shared)])


_MANY = 4


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
    return Text.assemble((row.label, "bold"), *parts)


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
    found += [("step", _text(sentence, "dim")) for sentence in waits_for(row.host_share)]
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
