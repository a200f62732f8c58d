"""The folder that assay works in: `ASSAY_HOME`, by default `./.assay`."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from assay.errors import UsageError
from assay.files import sweep

MACHINE = "ASSAY_MACHINE"
"""Variable that names the folder of measured rates; empty: they are kept in the home."""


class Home:
    """The folders under `ASSAY_HOME`. Creating this object touches no file; `ready()` creates them and tests
    writing."""

    def __init__(self, root: Path | str | None = None) -> None:
        try:
            self.root = Path(root or os.environ.get("ASSAY_HOME") or ".assay").absolute()
        except FileNotFoundError as error:
            raise UsageError("the working directory no longer exists; change to another folder first") from error

    @property
    def runs(self) -> Path:
        """Run folders, one per run."""
        return self.root / "runs"

    @property
    def data(self) -> Path:
        """Prepared corpora: shards and manifests."""
        return self.root / "data"

    @property
    def cache(self) -> Path:
        """Downloads, trained tokenizers, machine measurements."""
        return self.root / "cache"

    @property
    def reports(self) -> Path:
        """Pages and records of comparisons."""
        return self.root / "reports"

    @property
    def tracked(self) -> Path:
        """Copies of runs for trackers, a folder for each."""
        return self.root / "tracked"

    @property
    def points(self) -> Path:
        """CSV files of points of trained models, which the user puts there for the dashboard."""
        return self.root / "points"

    @property
    def store(self) -> Path:
        """The SQLite file that lists every run."""
        return self.root / "store.sqlite"

    def environment(self) -> dict[str, str]:
        """Return this process's environment, in which torch's compiler keeps its cache in the home, not in `/tmp`.

        A folder that the user has named for it stays.
        """
        return {"TORCHINDUCTOR_CACHE_DIR": str(self.cache / "torchinductor"), **os.environ}

    def checked(self) -> "Home":
        """Return the home for reading; a home that does not exist yet counts as empty.

        Raises `UsageError` if its path cannot be a folder, or if the folder cannot be read.
        """
        for place in (self.root, *self.root.parents):
            try:
                kind = place.stat().st_mode
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (OSError, ValueError) as error:
                raise UsageError(f"{place} cannot be used ({_reason(error)}); set ASSAY_HOME to a folder") from error
            if not stat.S_ISDIR(kind):
                raise UsageError(f"{self.root} cannot be a folder: {place} is a file; set ASSAY_HOME to a folder")
            if not os.access(place, os.R_OK | os.X_OK if place == self.root else os.X_OK):
                raise UsageError(f"{place} cannot be read (Permission denied); set ASSAY_HOME to a readable folder")
            break
        return self

    def ready(self) -> "Home":
        """Create the folders, remove what killed commands left in them, and return the home.

        Raises `UsageError` if it cannot be written.
        """
        self.checked()
        try:
            for folder in (self.runs, self.data, self.cache, self.reports):
                folder.mkdir(parents=True, exist_ok=True)
                sweep(folder)
            probe = self.root / f".writable-{os.getpid()}"
            try:
                probe.write_bytes(b"")
            finally:
                probe.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(
                f"{self.root} cannot be written ({_reason(error)}); set ASSAY_HOME to a writable folder"
            ) from error
        return self

    @contextmanager
    def provisional(self) -> Iterator[None]:
        """Remove a home that the body created if the body fails, unless the home contains files by then."""
        was_there = os.path.exists(self.root)
        try:
            yield
        except BaseException:
            if not was_there:
                for folder in (self.runs, self.data, self.cache, self.reports, self.root):
                    with suppress(OSError):
                        folder.rmdir()
            raise

    def writable(self) -> bool:
        """True if files of the home can be created or changed; a home that does not exist yet counts as writable."""
        places = [place for place in (self.root, self.store) if os.path.exists(place)]
        return all(os.access(place, os.W_OK) for place in places)


def user_folder() -> Path | None:
    """Return the folder for what belongs to the machine and serves every home of its user: measured rates.

    It is `ASSAY_MACHINE`, by default `assay` in `XDG_CACHE_HOME` or in `~/.cache`. None if the variable is empty, or
    if the user has no home directory.
    """
    named = os.environ.get(MACHINE)
    if named is not None:
        return Path(named).absolute() if named else None
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return cache / "assay" if cache.is_absolute() else None


def home_of(home: Home | Path | str | None) -> Home:
    """Return the home that a caller names; None is the usual one."""
    return home if isinstance(home, Home) else Home(home)


def _reason(error: Exception) -> str:
    """The system's own reason for an error."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
