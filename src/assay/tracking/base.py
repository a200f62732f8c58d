"""A tracker copies records of runs to a program of others that shows them, and writes to a folder only.

The copy has the configuration with flat keys, the series by completed steps, and a summary at the end. A run that is
copied anew replaces its earlier copy, so that no point appears twice. Trackers work in a process of their own
(`tracking.sender`), which may import what it likes.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

from assay.errors import one_line
from assay.records.status import Status

Value = bool | int | float | str

PROJECT = "assay"
"""Name of the project or experiment that gathers the runs."""
LONGEST_TEXT = 400
"""Characters of one text. The narrowest tracker takes 500."""
_LONGEST_NAME = 80
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


class Row(NamedTuple):
    """Values of some series at one step."""

    step: int
    """Number of completed steps."""
    time: float
    """Seconds since the epoch: the start of the process, plus the seconds of its steps so far."""
    values: Mapping[str, float]


@dataclass(frozen=True)
class Sheet:
    """The facts of a run that are known when it begins."""

    run: str
    """Id of the record."""
    title: str
    group: str = ""
    """Id of the study; empty for a run that is in none."""
    created: float = 0.0
    """Seconds since the epoch."""
    config: Mapping[str, Value] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """Name of the run for files and queries."""
        return safe(self.run)


@dataclass(frozen=True)
class Ending:
    """The facts of a run that are known when it has ended."""

    status: Status
    steps: int
    time: float
    """Seconds since the epoch."""
    summary: Mapping[str, Value] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, float]:
        """The summary's numbers; a truth value is 0 or 1."""
        return {name: float(value) for name, value in self.summary.items() if not isinstance(value, str)}

    @property
    def texts(self) -> dict[str, str]:
        """The summary's texts."""
        return {name: value for name, value in self.summary.items() if isinstance(value, str)}


class Tracker(ABC):
    """Copies one run after the other into a folder."""

    name: ClassVar[str]
    """Name on the command line, of the library and of the extra."""
    prefix: ClassVar[str]
    """Start of the names of the library's environment variables. None is inherited: they may name a server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def surroundings(self) -> Mapping[str, str]:
        """Return the environment variables of the process: nothing is sent away, and no file is outside the folder."""
        return {}

    @abstractmethod
    def load(self) -> None:
        """Import the library, so that later calls take no time for it."""

    @abstractmethod
    def begin(self, sheet: Sheet) -> None:
        """Begin the copy of a run, in place of an earlier one."""

    @abstractmethod
    def log(self, rows: Sequence[Row]) -> None:
        """Add rows in the order of their steps."""

    @abstractmethod
    def end(self, ending: Ending) -> None:
        """End the copy, and write it whole. Raises an error if a part of it was not written."""

    @abstractmethod
    def look(self, runs: Sequence[str]) -> str:
        """Return the command that shows the copies of these runs, or all of the folder if there are none."""


def safe(name: str) -> str:
    """Return a name that is one component of a path: letters, digits, dots, dashes and underscores, at most 80.

    A name that had to be changed ends with a digest of the whole, so that two names stay two.
    """
    if len(name) <= _LONGEST_NAME and name[:1].isalnum() and _UNSAFE.search(name) is None:
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:8]
    plain = _UNSAFE.sub("-", name[: 4 * _LONGEST_NAME]).strip(".-_")[: _LONGEST_NAME - len(digest) - 1]
    return f"{plain}-{digest}" if plain else digest


def text(value: str) -> str:
    """Return a text as one printable line that every tracker takes."""
    return one_line(value[: 2 * LONGEST_TEXT])[:LONGEST_TEXT]
