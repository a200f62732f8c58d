"""The last lines of a comparison or a study: its answer, the baseline beside it, and what to run next."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from assay.analysis.choose.answer import StudyAnswer, answers
from assay.analysis.comparison import Comparison
from assay.analysis.effects import LEAST_SEEDS
from assay.records.study import StudyEnding
from assay.report.closing.command import arguments, option, stack
from assay.report.footnotes import size
from assay.report.study.choices.answer import limited
from assay.report.wording import columns, figure, status

if TYPE_CHECKING:
    from assay.report.study.view import StudyView

_MOST = 2
"""Most rows whose fault is named."""


def closing(study: "StudyView") -> Iterator[tuple[str, str]]:
    """Yield (label, text) of the last lines."""
    comparison = study.comparison
    yield "result", study.answer or _untold(comparison)
    figures = (
        (metric.title, figure(metric, comparison.baseline.metrics.get(metric.name)))
        for metric in columns(comparison.run)
    )
    known = [f"{title} {text}" for title, text in figures if text]
    if known:
        yield "against", f"the baseline: {', '.join(known)}; {size(comparison)}"
    yield from (("next", hint) for hint in _hints(study))


def _untold(comparison: Comparison) -> str:
    """Return why there is no answer."""
    if comparison.baseline.finished and any(row.finished for row in comparison.rows):
        return "no row has all its processes yet, so none is chosen; above are the figures of those that have ended"
    ended = limited(comparison)
    return f"no row has finished, so nothing can be compared{f'. {ended}' if ended else ''}"


def _hints(study: "StudyView") -> Iterator[str]:
    comparison, record = study.comparison, study.comparison.record
    if record.ending is not StudyEnding.COMPLETE:
        yield f"assay study resume {record.id}    runs the cells that have no result"
    lost = [row for row in comparison.rows if row.status.failure and row.runs]
    yield from (f"assay runs show {row.runs[0]}    {row.treatment}: {status(row)}" for row in lost[:_MOST])
    found = study.of(answers)
    for one in found:
        yield from _trained(comparison, one)
    for one in found:
        yield from _surer(comparison, one)
    if not found and record.ending is StudyEnding.COMPLETE and not lost:
        yield f"assay study status {record.id}    shows what failed"


def _trained(comparison: Comparison, found: StudyAnswer) -> Iterator[str]:
    """Yield the command that trains with the chosen row: the fastest, or else the lightest."""
    chosen = found.fastest or found.lightest
    cells = () if chosen is None else comparison.record.of(chosen.row.treatment)
    run = cells[0].cell.run if cells else None
    written = None if run is None else arguments(run, comparison.record.title, seed=False)
    if chosen is not None and written is not None:
        told = f"{written} {_with(comparison, chosen.row.treatment)}".strip()
        where = f" at {found.context.name}" if found.context.levels else ""
        yield f"assay train {told}    trains with the chosen row{where}"


def _surer(comparison: Comparison, found: StudyAnswer) -> Iterator[str]:
    """Yield the comparison of the undecided rows over more seeds, if too few of them are the reason."""
    record = comparison.record
    written = arguments(record.base, record.title, seed=False)
    if record.kind != "comparison" or written is None or not found.unsure or len(record.seeds) >= LEAST_SEEDS:
        return
    rows = " ".join(_with(comparison, one.row.treatment) for one in found.unsure)
    yield f"assay compare {written} {rows} --seeds {LEAST_SEEDS}    tells whether losses are as good"


def _with(comparison: Comparison, treatment: str) -> str:
    """Return the option that turns on the techniques of a row: in a comparison its own name, as it was typed."""
    record = comparison.record
    return option(treatment) if record.kind == "comparison" else stack(record.of(treatment)[0].cell.run)
