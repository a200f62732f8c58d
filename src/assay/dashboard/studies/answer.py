"""The answer of a study that has a record: its rows, its sections, and memory against time as points of a figure.

The analysis takes up to seconds, so the answers of the last studies are kept until their records change.
"""

import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

from assay.analysis.choose.ranking import frontier
from assay.analysis.comparison import Comparison, analyse
from assay.errors import UsageError
from assay.report.blocks import Block, Table, quantity
from assay.report.comparison.row_table import rows_table
from assay.report.study.view import StudyView
from assay.studies.folder import StudyFolder

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


class Answers:
    """Answers of the studies that were looked at last. Any thread may use it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, tuple[int, Answer | None]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, folder: StudyFolder) -> Answer | None:
        """Return the answer of a study; None if it has no record yet, or is one of scaling, whose page answers.

        Raises `UsageError` if the record cannot be read.
        """
        try:
            stamp = folder.record_file.stat().st_mtime_ns
        except FileNotFoundError:
            return None
        with self._lock:
            if (known := self._kept.get(folder.path)) is None or known[0] != stamp:
                known = self._kept[folder.path] = (stamp, _answer(folder))
            self._kept.move_to_end(folder.path)
            while len(self._kept) > _MOST_ANSWERS:
                self._kept.popitem(last=False)
            return known[1]


def _answer(folder: StudyFolder) -> Answer | None:
    from assay.scaling.scaling_study import has_law

    record = folder.record()
    if record is None or not record.cells or has_law(record):
        return None
    comparison = analyse(record)
    rows = (comparison.baseline, comparison.again, *comparison.rows)
    parts = tuple(
        AnswerSection(one.section.title, one.blocks, one.section.leads) for one in StudyView(comparison).sections
    )
    return Answer(rows_table(comparison), tuple(row.treatment for row in rows), parts, points(comparison))


def points(comparison: Comparison) -> dict[str, Any] | None:
    """Return memory and time of all steps of each row that finished, in bytes and seconds, with their texts."""
    found = frontier(comparison)
    known = {one.name: one for one in found.criteria}
    if not {"memory", "time"} <= known.keys():
        return None
    return {
        "memory": known["memory"].metric.title,
        "points": [
            {
                "row": one.row.treatment,
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


def page_of(folder: StudyFolder) -> Path:
    """Return the written page of a study. Raises `UsageError` if there is none."""
    if not folder.page_file.is_file():
        raise UsageError(f"the study {folder.id} has no page yet; `assay study report {folder.id}` writes it")
    return folder.page_file
