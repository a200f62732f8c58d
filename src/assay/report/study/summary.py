"""The small table of a study: memory, time and loss of each row in a line, for the first screen of terminal and page.

A change is against the baseline. Intervals and all other figures are in the full table.
"""

from collections.abc import Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from assay.analysis.choose.criteria import LossDifference, LossVerdict, loss_differences, memory_metric
from assay.analysis.comparison import Comparison
from assay.analysis.metrics import Metric, metrics
from assay.analysis.metrics.standard import STEP_SECONDS, loss_of
from assay.analysis.row import Row
from assay.records.status import Status
from assay.report.comparison.wording import Tone, few, figure, not_proven, status, texts, whole_percent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from assay.report.study.view import StudyView

MOST_ROWS = 9
"""Most rows of the table besides the baseline."""
PROVEN, WRONG, OPEN = "✓", "✗", "?"
UNTOLD = "open"
"""Before a difference of losses that may be worse than the margin."""
UNSURE = "≈"
"""Before a change of the time that cannot be told from none."""


class SummaryChange(NamedTuple):
    """The change of one metric of a row."""

    text: str
    """Change in whole percent, or the figure of the baseline."""
    fraction: float | None
    """None for the baseline, and where there is no change to compare."""
    predicted: str
    tone: Tone

    def noisy(self, least: float) -> bool:
        """True for a change that is marked, although it is larger than the least one that can be told elsewhere."""
        return self.text.startswith(UNSURE) and self.fraction is not None and abs(self.fraction) > least


class SummaryRow(NamedTuple):
    """One line of the table."""

    row: Row
    changes: tuple[SummaryChange, ...]
    """One for each column of `Summary.titles`."""
    loss: str
    loss_tone: Tone
    proof: str
    """A tick, a cross, a question mark for what was not proven, or nothing for a row without optimizations."""
    remark: str
    """Ending of the row, if it is not done, or the reason why it is not proven."""


class Summary(NamedTuple):
    """The table."""

    titles: tuple[str, ...]
    rows: tuple[SummaryRow, ...]


def summary(study: "StudyView") -> Summary:
    """Return the baseline and the rows of a study, each with memory, step time if it was compared, and loss."""
    comparison = study.comparison
    memory, time = memory_metric(comparison), metrics()[STEP_SECONDS.name]
    shown = (memory, time) if comparison.record.timed else (memory,)
    losses = study.of(loss_differences)
    rows = [_row(comparison, row, shown, losses.get(row.treatment)) for row in comparison.rows]
    titles = tuple("memory" if one is memory else one.title for one in shown)
    return Summary(titles, (_row(comparison, comparison.baseline, shown, None), *rows))


def fewer(found: Summary, answer: str) -> tuple[SummaryRow, ...]:
    """Return the rows of a first screen: the baseline, those that the answer names, and those with the least time."""
    if len(found.rows) <= 1 + MOST_ROWS:
        return found.rows
    first, *others = found.rows
    named = _named([one.row.label for one in others], answer)

    def rank(one: SummaryRow) -> tuple[bool, float]:
        change = one.changes[-1].fraction
        return one.row.label not in named, inf if change is None else change

    kept = {one.row.treatment for one in sorted(others, key=rank)[:MOST_ROWS]}
    return (first, *(one for one in others if one.row.treatment in kept))


def _named(labels: Sequence[str], answer: str) -> set[str]:
    """Return the names that an answer says; a name that is part of a longer one is not counted there."""
    found = set()
    for label in sorted(labels, key=len, reverse=True):
        if label in answer:
            found.add(label)
            answer = answer.replace(label, "")
    return found


def _row(comparison: Comparison, row: Row, shown: Sequence[Metric], difference: LossDifference | None) -> SummaryRow:
    loss, tone = _loss(comparison, row, difference)
    unproven = not_proven(row)
    return SummaryRow(
        row,
        tuple(_change(row, metric, first=row is comparison.baseline) for metric in shown),
        loss,
        tone,
        _proof(row, unproven),
        status(row) or (f"not proven: {unproven}" if unproven else ""),
    )


def _change(row: Row, metric: Metric, *, first: bool) -> SummaryChange:
    said = texts(row, metric)
    effect, predicted = row.effects.get(metric.name), row.predicted_change.get(metric.name)
    if first or effect is None:
        return SummaryChange(said.value if first else "", None, "", "neutral")
    open_ended = metric.kind == "timed" and said.tone == "neutral"
    text = f"{UNSURE} {whole(effect.change)}" if open_ended else whole(effect.change)
    return SummaryChange(text, effect.change, "" if predicted is None else whole(predicted), said.tone)


def whole(fraction: float) -> str:
    """Format a change in whole percent, or as a multiple from ten times on."""
    if fraction >= 9:
        return f"× {1 + fraction:.0f}"
    return whole_percent(fraction)


_VERDICTS: dict[LossVerdict, tuple[str, Tone]] = {
    LossVerdict.EQUAL: ("same", "neutral"),
    LossVerdict.SAME: ("same", "neutral"),
    LossVerdict.NO_WORSE: ("no worse", "neutral"),
    LossVerdict.BETTER: ("lower", "better"),
    LossVerdict.WORSE: ("worse", "worse"),
    LossVerdict.UNKNOWN: (UNTOLD, "neutral"),
}


_ROUGH = 0.1
"""Difference of losses from which two decimals are enough."""


def _loss(comparison: Comparison, row: Row, difference: LossDifference | None) -> tuple[str, Tone]:
    """Return whether a row's loss is as good as the baseline's, with the difference where it is not the same."""
    if difference is None:
        return figure(loss_of(comparison.run), row.metrics.get(loss_of(comparison.run).name)), "neutral"
    words, tone = _VERDICTS[difference.verdict]
    if words == "same":
        return words, tone
    text = f"{difference.nats:+.3f}" if abs(difference.nats) < _ROUGH else f"{difference.nats:+.2f}"
    return words if not float(text) else f"{words} {text}".replace("-", "−"), tone


def is_wrong(row: Row) -> bool:
    """Return whether a row computed wrong values."""
    return row.status is Status.WRONG_VALUES or (row.values is not None and bool(row.values.failures))


def _proof(row: Row, unproven: str) -> str:
    if is_wrong(row) or any(not one.verdict for one in row.evidence):
        return WRONG
    proofs = row.evidence or row.values is not None
    return "" if not proofs else OPEN if unproven else PROVEN


_STYLES: dict[Tone, str] = {"better": "green", "worse": "red", "neutral": ""}
_BAR = 3
"""Characters of a bar, which is full at a change of 100 %."""
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_NAME, _FIGURE, _LOSS = 26, 8, 13
"""Widths of the columns of names, of figures, and of the loss with its mark, in characters; the table fits 80."""
_WIDE = 78
"""Columns of a terminal that has room for bars and predictions."""
_SHORTEST_NAME = 8


def print_summary(study: "StudyView", console: "Console") -> None:
    """Print the table within 80 columns: changes with bars, predictions dimmed, and proofs as ticks.

    A narrow terminal has changes without bars and predictions, and names over several lines.
    """
    from rich.table import Table

    found, wide = study.summary, console.width >= _WIDE
    rows = fewer(found, study.answer)
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    room = console.width - len(found.titles) * (_FIGURE + 1) - _LOSS - 1
    table.add_column("", width=_NAME if wide else max(_SHORTEST_NAME, min(_NAME, room)), overflow="fold")
    for title in found.titles:
        table.add_column(
            title if wide else title.removeprefix("step "), justify="right", no_wrap=True, min_width=_FIGURE
        )
        if wide:
            table.add_column("", no_wrap=True, width=_BAR)
            table.add_column("pred.", justify="right", no_wrap=True, min_width=5, style="dim", header_style="dim")
    table.add_column("loss", justify="right", no_wrap=wide)
    table.add_column("", no_wrap=True)
    for one in rows:
        table.add_row(*_cells(one, wide))
    console.print(table, soft_wrap=True)
    for line in _below(found, rows):
        console.print(line, style="dim", highlight=False, markup=False, soft_wrap=not console.is_terminal)


def _below(found: Summary, rows: Sequence[SummaryRow]) -> Iterator[str]:
    """Yield what the table leaves out: further rows, and what the marks mean."""
    if left := len(found.rows) - len(rows):
        yield f"{left} more row{'s' if left > 1 else ''} with --full"
    proofs = {one.proof for one in found.rows}
    if proofs <= {"", PROVEN} and PROVEN in proofs:
        yield f"{PROVEN} each optimization took effect, and its values are right"
    remarks: dict[tuple[str, str], list[str]] = {}
    for one in found.rows:
        if one.remark:
            mark = one.proof if one.proof in (WRONG, OPEN) else "–"
            remarks.setdefault((mark, one.remark), []).append(one.row.label)
    for (mark, remark), labels in remarks.items():
        which = few(labels) if len(labels) == 1 or len(labels) < len(found.rows) - 1 else "every row"
        yield f"{mark} {which}: {remark}"


def _cells(one: SummaryRow, wide: bool) -> list["Text"]:
    from rich.text import Text

    cells = [Text(one.row.label)]
    for change in one.changes:
        style = _STYLES[change.tone]
        cells.append(Text(change.text, style))
        if wide:
            cells += [Text(_bar(change.fraction), style), Text(change.predicted.removesuffix(" %"))]
    tick = {PROVEN: "green", WRONG: "red"}.get(one.proof, "yellow")
    mark = Text("!", "yellow") if one.row.flags else Text(one.proof, tick)
    return [*cells, Text(one.loss, _STYLES[one.loss_tone]), mark]


def _bar(fraction: float | None) -> str:
    """Return a bar in eighths of a character."""
    eighths = 0 if fraction is None else min(8 * _BAR, round(8 * _BAR * abs(fraction)))
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
