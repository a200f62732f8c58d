"""Where assay keeps things: one folder, `ASSAY_HOME`, `./.assay` unless the environment says otherwise."""

import os
from pathlib import Path

from assay.errors import UsageError


class Home:
    """The folders under `ASSAY_HOME`. Making one touches nothing; `ready()` creates them and tries to write."""

    def __init__(self, root: Path | str | None = None) -> None:
        self.root = Path(root or os.environ.get("ASSAY_HOME") or ".assay").absolute()

    @property
    def runs(self) -> Path:
        """A folder per run."""
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
        """Pages."""
        return self.root / "reports"

    @property
    def store(self) -> Path:
        """The SQLite file that lists every run."""
        return self.root / "store.sqlite"

    def checked(self) -> "Home":
        """The home, for reading: one that does not exist yet is empty. Raises `UsageError` where no folder can be."""
        existing = next(place for place in (self.root, *self.root.parents) if place.exists())
        if not existing.is_dir():
            raise UsageError(f"{self.root} cannot be a folder, since {existing} is a file; set ASSAY_HOME to a folder")
        return self

    def ready(self) -> "Home":
        """Create the folders. Raises `UsageError` when the place cannot be written."""
        try:
            for folder in (self.runs, self.data, self.cache, self.reports):
                folder.mkdir(parents=True, exist_ok=True)
            probe = self.root / f".writable-{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise UsageError(
                f"{self.root} cannot be written ({error.strerror or error}); set ASSAY_HOME to a folder that can"
            ) from error
        return self
