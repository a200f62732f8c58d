"""The answer of a study: its rows, its sections, and memory against time as points of a figure.

The analysis takes up to seconds, so the answers of the last studies are kept until their records change. A study that
runs has rows and points of the cells that have ended, and is analysed again when another one has.
"""

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

from assay.analysis.choose.ranking import frontier
from assay.analysis.comparison import Comparison, analyse
from assay.analysis.metrics.standard import STEP_SECONDS, TENSORS_PEAK_BYTES
from assay.config.home import Home
from assay.errors import UsageError
from assay.records.events import CellEndEvent, CellStartEvent
from assay.records.study import ComparisonRecord, StudyEnding
from assay.report.comparison.row_table import rows_table
from assay.report.kit.blocks import Block, Table, quantity
from assay.report.kit.drawing import row_numbers
from assay.report.study.view import StudyView
from assay.studies.execution.fold import fold, record_of
from assay.studies.folder import StudyFolder
from assay.units import format_bytes, format_seconds

_MOST_ANSWERS = 8


class AnswerSection(NamedTuple):
    """One section of an answer."""

    title: str
    blocks: tuple[Block, ...]
    leads: bool
    """True if it is shown above the table."""


class Answer(NamedTuple):
    """The answer of a study."""

    table: Table
    """A line for the baseline, its second run, and every row."""
    rows: tuple[str, ...]
    """Label of each line of the table."""
    parts: tuple[AnswerSection, ...]
    front: dict[str, Any] | None
    """Points of memory against time, or None if rows do not differ in both."""
    sentence: str
    """The answer in a few sentences; empty if there is none."""
    next: tuple[tuple[str, str], ...]
    """Commands that follow from the answer, each with what it does."""


class Answers:
    """Answers of the studies that were looked at last. Any thread may use it."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._kept: OrderedDict[Path, tuple[int, Answer | None]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, folder: StudyFolder, ended: int | None = None) -> Answer | None:
        """Return the answer of a study; of one that runs, what its cells that have `ended` tell, by their number.

        None if none has ended, and for a study of scaling, whose page answers. Raises `UsageError` if the record or the
        plan cannot be read.
        """
        try:
            stamp = folder.record_file.stat().st_mtime_ns if ended is None else ended
        except FileNotFoundError:
            return None
        with self._lock:
            if (known := self._kept.get(folder.path)) is None or known[0] != stamp:
                record = folder.record() if ended is None else record_so_far(folder, self._home)
                known = self._kept[folder.path] = (stamp, _answer(record, so_far=ended is not None))
            self._kept.move_to_end(folder.path)
            while len(self._kept) > _MOST_ANSWERS:
                self._kept.popitem(last=False)
            return known[1]


def record_so_far(folder: StudyFolder, home: Home) -> ComparisonRecord | None:
    """Return the record of the cells that have ended; None without a plan.

    Only runs whose end the log tells are read. Their results are written, so nothing is written here.
    """
    plan = folder.plan()
    if plan is None:
        return None
    events = folder.events()
    ended = {one.cell for one in events if isinstance(one, CellEndEvent)}
    told = [one for one in events if not isinstance(one, CellStartEvent) or one.cell in ended]
    return record_of(plan, fold(plan, told, home), StudyEnding.INTERRUPTED)


def _answer(record: ComparisonRecord | None, *, so_far: bool) -> Answer | None:
    from assay.scaling.scaling_study import has_law

    if record is None or not record.cells or has_law(record):
        return None
    comparison = analyse(record)
    view = StudyView(comparison)
    rows = (comparison.baseline, comparison.again, *comparison.rows)
    parts = tuple(AnswerSection(one.section.title, one.blocks, one.section.leads) for one in view.sections)
    hints = tuple(command_of(text) for label, text in view.closing() if label == "next")
    names = tuple(row.label for row in rows)
    drawn = points(comparison) or (points_so_far(comparison) if so_far else None)
    return Answer(rows_table(comparison), names, parts, drawn, first_sentence(view), hints)


def first_sentence(view: StudyView) -> str:
    """Return the sentence that a study is known by in other views; empty if it has none."""
    doubt = " (not sealed)" if view.headline and view.comparison.record.unsealed else ""
    return view.headline + doubt


def command_of(hint: str) -> tuple[str, str]:
    """Return the command of a last line, and what it does."""
    command, _, purpose = hint.partition("    ")
    return command, purpose


def points(comparison: Comparison) -> dict[str, Any] | None:
    """Return memory and time of all steps of each row that finished, in bytes and seconds, with their texts."""
    found = frontier(comparison)
    known = {one.name: one for one in found.criteria}
    if not {"memory", "time"} <= known.keys():
        return None
    numbers = row_numbers(comparison.record)
    return {
        "memory": known["memory"].metric.title,
        "time": "time of all steps",
        "points": [
            {
                "row": one.row.label,
                "number": numbers[one.row.treatment],
                "seconds": one.figures["time"],
                "bytes": one.figures["memory"],
                "text": ", ".join(
                    f"{'all steps' if name == 'time' else criterion.metric.title} "
                    f"{quantity(one.figures[name], criterion.metric.unit)}"
                    for name, criterion in known.items()
                ),
                "on_front": one.on_front,
            }
            for one in found.rows
            if one.figures
        ],
    }


def points_so_far(comparison: Comparison) -> dict[str, Any] | None:
    """Return memory and step time of each row with a process that has ended; None before any has both.

    Which rows are on the front is not said, because no row has all its processes.
    """
    found, numbers = [], row_numbers(comparison.record)
    for row in (comparison.baseline, *comparison.rows):
        seconds, nbytes = (row.metrics.get(one.name) for one in (STEP_SECONDS, TENSORS_PEAK_BYTES))
        if isinstance(seconds, float) and isinstance(nbytes, int):
            text = f"{STEP_SECONDS.title} {format_seconds(seconds)}, {TENSORS_PEAK_BYTES.title} {format_bytes(nbytes)}"
            number = numbers[row.treatment]
            point = {"row": row.label, "number": number, "seconds": seconds, "bytes": nbytes, "text": text}
            found.append({**point, "on_front": False})
    return {"memory": TENSORS_PEAK_BYTES.title, "time": STEP_SECONDS.title, "points": found} if found else None


def page_of(folder: StudyFolder) -> Path:
    """Return the written page of a study. Raises `UsageError` if there is none."""
    if not folder.page_file.is_file():
        raise UsageError(f"the study {folder.id} has no page yet; `assay study report {folder.id}` writes it")
    return folder.page_file
