"""The studies of a home: one line each, from their plans and logs.

A plan is read once, and again when it changes. A log is read once, and then from where the last reading ended, however
many studies there are.
"""

import threading
from pathlib import Path
from typing import NamedTuple

from assay.config.home import Home
from assay.dashboard.studies.progress import Course, merge_cells
from assay.dashboard.tail import Tail
from assay.errors import UsageError, legible
from assay.records.study import ComparisonRecord
from assay.studies.folder import StudyFolder, StudyPlan, folders

_LONGEST = 200


class StudyLine(NamedTuple):
    """One study in the list."""

    id: str
    title: str
    """Its name, or its base if it has none."""
    base: str
    """Its preset or file."""
    kind: str
    question: str
    status: str
    cells: int
    """Planned cells."""
    ended: int


class _Planned(NamedTuple):
    """Facts for the list, of a plan, or of the record of a comparison that has none."""

    title: str
    base: str
    kind: str
    question: str
    cells: int
    runs: frozenset[str]
    """Runs that the record names; empty for a plan, whose log names them."""


class Studies:
    """The studies of a home. Any thread may use it."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._tails: dict[Path, Tail] = {}
        """One for each study of the home. They are small: a digest has the states of cells only."""
        self._plans: dict[Path, tuple[int, _Planned]] = {}
        self._lock = threading.Lock()

    def known(self) -> list[StudyLine]:
        """All studies, newest first; one that cannot be read is damaged."""
        there = folders(self._home)
        logs = {folder.events_file for folder in there}
        with self._lock:
            self._tails = {log: tail for log, tail in self._tails.items() if log in logs}
        return [self.line(folder) for folder in reversed(there)]

    def line(self, folder: StudyFolder) -> StudyLine:
        """Return one study for the list."""
        try:
            planned = self._planned(folder)
        except UsageError as error:
            return StudyLine(folder.id, "", "", "", legible(str(error), _LONGEST), "damaged", 0, 0)
        cells, over = merge_cells(self.tail(folder).since(0)[0])
        status = "running" if folder.running else over or ("complete" if planned.runs else "stopped")
        ended = len(planned.runs) or sum(one["ended"] for one in cells.values())
        return StudyLine(folder.id, *planned[:4], status, planned.cells, ended)

    def runs(self, name: str) -> frozenset[str]:
        """Return the ids of a study's runs; none if there is no such study."""
        folder = next((one for one in folders(self._home) if one.id == name), None)
        if folder is None:
            return frozenset()
        cells, _ = merge_cells(self.tail(folder).since(0)[0])
        try:
            return self._planned(folder).runs | {one["run"] for one in cells.values()}
        except UsageError:
            return frozenset()

    def tail(self, folder: StudyFolder) -> Tail:
        """Return the tail of a study's log."""
        log = folder.events_file
        with self._lock:
            return self._tails.setdefault(log, Tail(log, Course(folder.plan)))

    def _planned(self, folder: StudyFolder) -> _Planned:
        """Read what the list needs, or recall it. Raises `UsageError` if a file cannot be read."""
        path = folder.plan_file if folder.plan_file.exists() else folder.record_file
        stamp = path.stat().st_mtime_ns
        with self._lock:
            known = self._plans.get(path)
            if known is None or known[0] != stamp:
                known = self._plans[path] = (stamp, _read(folder))
            return known[1]


def _read(folder: StudyFolder) -> _Planned:
    stated: StudyPlan | None = folder.plan()
    if stated is not None:
        count, runs = len(stated.cells), frozenset[str]()
        return _Planned(*_texts(stated), count, runs)
    record = folder.record()
    if record is None:
        raise UsageError(f"the study {folder.id} has neither a plan nor a record")
    runs = frozenset(one.result.run for one in (*record.cells, *record.nudged))
    return _Planned(*_texts(record), len(runs), runs)


def _texts(stated: StudyPlan | ComparisonRecord) -> tuple[str, str, str, str]:
    texts = (stated.name or stated.title, stated.title, stated.kind, stated.question)
    title, base, kind, question = (legible(text, _LONGEST) for text in texts)
    return title, base, kind, question
