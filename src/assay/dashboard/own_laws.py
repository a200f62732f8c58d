"""Laws of the home's own points: those of its studies of scaling, and of the CSV files in its folder `points`.

Each is fitted once for each state of its source, and kept. One is fitted at a time, because a fit uses all cores. A
file is read if it is small enough to be fitted while a reader waits.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import floor, log10
from pathlib import Path
from shlex import quote
from statistics import median
from threading import Lock

from assay.api import study
from assay.api.laws import fit
from assay.api.optimal import frontier_of
from assay.api.scaling_study import answer
from assay.config.home import Home
from assay.config.loading import read_bytes
from assay.errors import UsageError, among, short_text
from assay.scaling.fitted import FittedLaw
from assay.scaling.frontier import Frontier
from assay.scaling.points import spent_flops
from assay.scaling.scaling_study import StudyPoint
from assay.studies.folder import find
from assay.studies.kinds.isoflop import Isoflop
from assay.units import format_count, format_power

STUDY = "study:"
"""Beginning of the name of a law that is fitted to a study."""
POINTS = "points:"
"""Beginning of the name of a law that is fitted to a CSV file of the home's folder `points`."""
_MOST_POINTS = 1000
"""Points of a file that are fitted in a few seconds."""
_MOST_BYTES = 1 << 20
"""Length of a file that is read in order to count its points."""
_FITTING = Lock()

_IN_A_DECADE = 2
"""Groups of runs of a file in each power of ten of compute."""


@dataclass(frozen=True)
class Budget:
    """Runs of equal or similar compute."""

    name: str
    flops: float
    """Median of their FLOPs."""
    runs: tuple[tuple[float, float, str], ...]
    """Parameters, loss and label of each."""


@dataclass(frozen=True)
class OwnLaw:
    """A law that is fitted to points of the home, with its points."""

    law: FittedLaw
    budgets: tuple[Budget, ...]
    frontier: Frontier


def studies(home: Home) -> dict[str, str]:
    """Return the studies of scaling of a home that have runs, newest first: titles by id."""
    listed = (one for one in study.ls(home) if one.kind == Isoflop.kind and one.ended)
    return {one.id: f"{one.name or one.title}, {one.id}" for one in listed}


def files(home: Home) -> list[str]:
    """Return the names of the CSV files of points of a home that can be read."""
    return [name for name, fault in _found(home) if not fault]


def faults(home: Home) -> list[str]:
    """Return a sentence on each CSV file of a home's folder of points that is not read."""
    return [f"{short_text(name)} is not read, because {fault}." for name, fault in _found(home) if fault]


def _found(home: Home) -> list[tuple[str, str]]:
    """Return the name of each CSV file, and why it is not read; empty if it is."""
    listed = sorted(home.points.iterdir()) if home.points.is_dir() else []
    return [(one.name, _fault(one)) for one in listed if one.suffix.lower() == ".csv"]


def _fault(path: Path) -> str:
    if not path.name.isprintable():
        return "its name is not plain text; rename it"
    if path.is_symlink():
        return "it is a link; put the file itself there"
    if not path.is_file():
        return "it is not a file"
    return ""


def law_of(name: str, home: Home) -> OwnLaw:
    """Return the law of a source that an address names, as ``study:ID`` or ``points:FILE``.

    Raises `UsageError` if there is no such source, or if its points cannot determine a law.
    """
    if name.startswith(STUDY):
        folder = find(home, name.removeprefix(STUDY))
        known = (one for one in (folder.record_file, folder.events_file) if one.exists())
        with _FITTING:
            return _of_study(folder.id, home.root, tuple(one.stat().st_mtime_ns for one in known))
    file = name.removeprefix(POINTS)
    if file not in files(home):
        raise UsageError(f"there is no file {short_text(file)} in {home.points}{among(file, files(home))}")
    path = home.points / file
    with _FITTING:
        return _of_file(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=8)
def _of_study(identity: str, root: Path, changed: tuple[int, ...]) -> OwnLaw:
    found = answer(identity, home=root)
    frontier = frontier_of(found.law, f"the {len(found.law.fit.points)} runs of {identity}")
    return OwnLaw(found.law, tuple(_budgets(found.points)), frontier)


@lru_cache(maxsize=8)
def _of_file(path: Path, changed: int) -> OwnLaw:
    # As `assay scaling optimal --points` fits them, so that its command has the same answer.
    _check_size(path)
    found = fit(path, hold_out=False)
    frontier = frontier_of(found, f"the {len(found.fit.points)} points of {path.name}")
    return OwnLaw(found, tuple(_groups(found)), frontier)


def _check_size(path: Path) -> None:
    """Raise `UsageError` if a fit of a file would take longer than a reader waits."""
    try:
        raw = read_bytes(path, _MOST_BYTES)
    except OSError:
        return  # the fit says it
    rows = None if raw is None else len(raw.splitlines())  # whatever its line ends are
    if rows is None or rows > _MOST_POINTS:
        size = "longer than 1 MiB" if rows is None else f"{rows:,} lines long"
        raise UsageError(
            f"{path.name} is {size}, and this page fits at most {_MOST_POINTS:,} points; "
            f"`assay scaling fit {quote(str(path))}` fits more"
        )


def _budgets(points: Iterable[StudyPoint]) -> Iterator[Budget]:
    """Yield the budgets of a study, without runs at other learning rates."""
    groups: dict[str, list[StudyPoint]] = {}
    for one in points:
        if one.role != "rate":
            groups.setdefault(one.budget or format_power(one.flops), []).append(one)
    for name, runs in groups.items():
        held_out = ", held out" if any(one.role == "held out" for one in runs) else ""
        at = tuple((float(one.parameters), one.loss, one.label) for one in runs)
        yield Budget(f"{name} FLOPs{held_out}", median(one.flops for one in runs), at)


def _groups(found: FittedLaw) -> Iterator[Budget]:
    """Yield the runs of a file by half powers of ten of compute, because their budgets are not named."""
    groups: dict[int, list[tuple[float, float, float]]] = {}
    points = found.fit.points
    columns = (one.tolist() for one in (spent_flops(points), points.parameters, points.loss))
    for flops, size, loss in sorted(zip(*columns, strict=True)):
        groups.setdefault(floor(_IN_A_DECADE * log10(flops)), []).append((flops, size, loss))
    for runs in groups.values():
        middle = median(flops for flops, _, _ in runs)
        at = tuple((size, loss, f"{format_count(size)}, {format_power(flops)} FLOPs") for flops, size, loss in runs)
        yield Budget(f"about {format_power(middle)} FLOPs", middle, at)
