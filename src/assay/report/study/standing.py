"""The plan of a study, and its state: rows with predicted memory and time, how many cells ended, what failed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from assay.analysis.factors.layout import layout_of, names_of
from assay.report.kit.blocks import UNKNOWN, Block, Facts, Table, amount
from assay.units import format_count, format_seconds

if TYPE_CHECKING:
    from assay.studies.execution.study_listing import StudyStanding
    from assay.studies.outlook import CellOutlook, Outlook, RowOutlook


def outlook_report(plan: "Outlook", *, cells: bool = False) -> Iterator[Block]:
    """Yield the whole, a table of the rows, and sentences on the design and on rows that cannot run.

    `cells` adds a table of every cell.
    """
    yield Facts.of(_whole(plan))
    columns = ("configuration", "runs", "peak of tensors", "step", "one run", "remark")
    names = names_of(layout_of({one.label: one.levels for one in plan.rows}))
    yield Table.of(
        columns, (_row(one, names.get(one.label, one.label)) for one in plan.rows), right=columns[1:5], spare=("step",)
    )
    if cells:
        columns = ("run of", "seed", "repeat", "peak of tensors", "time", "remark")
        yield Table.of(columns, (_cell(one, names.get(one.name, one.name)) for one in plan.cells()), right=columns[1:5])
        if plan.drifts:
            yield f"Further runs of the baseline with nudged weights: {plan.drifts}."
    yield from plan.notes
    if not plan.timed:
        yield "The study measures losses and memory only, so no time is predicted."
    elif plan.seconds is None and any(row.problem is None and row.step_seconds is None for row in plan.rows):
        yield "Times are not predicted; --calibrate times steps of few blocks, and `assay machine` measures rates."


def _whole(plan: "Outlook") -> Iterator[tuple[str, str]]:
    able = sum(row.problem is None for row in plan.rows)
    if plan.name:
        yield "study", plan.name
    if plan.question:
        yield "question", plan.question
    yield "kind", plan.kind
    yield "base", plan.base
    rows = f"{able}" if able == len(plan.rows) else f"{able} of {len(plan.rows)} can run"
    yield "configurations", f"{rows}, the control among them, which runs twice at each seed"
    yield "runs", f"{format_count(plan.processes)} over {plan.seeds} seed{'s' if plan.seeds > 1 else ''}"
    yield "time", UNKNOWN if plan.seconds is None else f"{format_seconds(plan.seconds)}, one run at a time"


def _row(row: "RowOutlook", name: str) -> tuple[str, ...]:
    times = (UNKNOWN if one is None else format_seconds(one) for one in (row.step_seconds, row.seconds))
    remark = _condition(row.share)
    if row.problem is not None:
        remark = f"{'not here' if row.unavailable else 'not possible'}: {row.problem}"
    return name, str(row.processes), amount(row.peak_bytes), *times, remark


def _cell(one: "CellOutlook", name: str) -> tuple[str, ...]:
    time = UNKNOWN if one.seconds is None else format_seconds(one.seconds)
    numbers = str(one.seed), str(one.process + 1)
    return name, *numbers, amount(one.peak_bytes), time, _condition(one.share)


def _condition(share: float) -> str:
    return "" if share == 1 else "if it goes on"


def standing_report(standing: "StudyStanding") -> Iterator[Block]:
    """Yield the state, and a table of cells that did not end as they should."""
    study = standing.study
    facts = {
        "study": study.id,
        "name": study.name,
        "question": study.question,
        "kind": study.kind,
        "base": study.title,
        "status": study.status,
        "process": standing.process,
        "runs": f"{study.ended} of {study.cells} have ended",
        "of them": ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in standing.by_status.items()),
    }
    yield Facts.of((label, text) for label, text in facts.items() if text)
    if standing.problems:
        yield Table.of(("run of", "id", "problem"), standing.problems)
    if study.status not in ("complete", "running"):
        yield f"`assay study resume {study.id}` does the runs that have no result."
