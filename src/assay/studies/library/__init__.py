"""The library: published studies as files of their own, run by name. The folder is the registry.

A study of the library is an ordinary file of a study. Its `published` has the document, the document's own table, and
what was wrong with it. Its `scales` has a small shape for a CPU with few cores. To add one, drop a file here.
"""

from pathlib import Path
from typing import NamedTuple

from assay.errors import UsageError, among, short_text, suggestion
from assay.studies.base import Study
from assay.studies.reading import FULL, read_study, scales

_FOLDER = Path(__file__).parent


class LibraryEntry(NamedTuple):
    """One study of the library."""

    name: str
    scales: dict[str, Study]
    """The study at each scale, the full one first."""

    @property
    def study(self) -> Study:
        """The study at its full scale."""
        return self.scales[FULL]


def names() -> list[str]:
    """Return the names of all studies of the library."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def entry(name: str) -> LibraryEntry:
    """Return a study of the library. Raises `UsageError` if there is none of this name."""
    if name not in names():
        hint = among(name, names())
        raise UsageError(f"the library has no study {short_text(name)}{hint}")
    path = _FOLDER / f"{name}.yaml"
    return LibraryEntry(name, {scale: read_study(path, scale) for scale in scales(path)})


def command_of(study: str) -> str | None:
    """Return the command that runs a study of the library; None if `study` is not the name of one at a scale."""
    name, _, rest = study.partition(" (")
    if name not in names():
        return None
    return f"assay study run {name}" + (f" --scale {rest.removesuffix(')')}" if rest else "")


def find_study_file(source: str | Path) -> Path:
    """Return the file of a study that is given by its name in the library or by its path.

    A name of the library comes first, as a preset does. Raises `UsageError` if there is neither.
    """
    name = str(source)
    if isinstance(source, str) and name in names():
        return _FOLDER / f"{name}.yaml"
    path = Path(source)
    if not path.exists() and "/" not in name and path.suffix not in (".yaml", ".yml"):
        hint = suggestion(name, names()) or "; `assay study library` lists the names"
        raise UsageError(f"there is no study or file named {short_text(name)}{hint}")
    return path
