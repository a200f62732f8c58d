"""Laws of the home's studies: fitted once for each state of a study, and kept."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from assay.api import study
from assay.api.asking.optimal import frontier_of
from assay.api.isoflop.answers import answer
from assay.config.home import Home
from assay.scaling.asking.frontier import Frontier
from assay.scaling.fitted import FittedLaw
from assay.scaling.studied.points import StudyPoint
from assay.studies.folder import find
from assay.studies.kinds.isoflop import Isoflop


@dataclass(frozen=True)
class StudyLaw:
    """The law of a study, with its points."""

    study: str
    title: str
    law: FittedLaw
    points: tuple[StudyPoint, ...]
    frontier: Frontier


def studies(home: Home) -> dict[str, str]:
    """Return the studies of scaling of a home that have runs, newest first: titles by id."""
    listed = (one for one in study.ls(home) if one.kind == Isoflop.kind and one.ended)
    return {one.id: f"{one.name or one.title}, {one.id}" for one in listed}


def law_of(name: str, home: Home) -> StudyLaw:
    """Return the law of a study, by its id. Raises `UsageError` if too few of its runs have ended."""
    folder = find(home, name)
    changed = tuple(one.stat().st_mtime_ns for one in (folder.record_file, folder.events_file) if one.exists())
    return _fitted(folder.id, home.root, changed)


@lru_cache(maxsize=8)
def _fitted(identity: str, root: Path, changed: tuple[int, ...]) -> StudyLaw:
    found = answer(identity, home=root)
    frontier = frontier_of(found.law, f"the {len(found.law.fit.points)} runs of {identity}")
    title = found.record.name or found.record.title
    return StudyLaw(identity, title, found.law, found.points, frontier)
