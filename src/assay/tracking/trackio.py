"""Trackio: runs of one project in an SQLite file, with the configuration, the series by step, and the summary.

The summary is the last row of a run: numbers under ``summary/NAME``, and texts, which Trackio shows in its table of
runs. The library writes in a thread that reports a failure as a warning only, so the rows are counted at the end.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from assay.tracking.base import PROJECT, Ending, Row, Sheet, Tracker


class Trackio(Tracker):
    """Writes to an SQLite file of Trackio."""

    name: ClassVar[str] = "trackio"
    prefix: ClassVar[str] = "TRACKIO_"

    def surroundings(self) -> Mapping[str, str]:
        """Return variables that keep the library offline, and its files in the folder."""
        off = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "GRADIO_ANALYTICS_ENABLED": "False"}
        return {"TRACKIO_DIR": str(self.folder), **off}

    def load(self) -> None:
        """Import the library."""
        import trackio
        from trackio.sqlite_storage import SQLiteStorage

        self._trackio, self._storage = trackio, SQLiteStorage
        self._run: Any = None

    def begin(self, sheet: Sheet) -> None:
        """Begin a run, and delete an earlier copy."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._name, self._rows = f"{sheet.title} {sheet.key}", 0
        for earlier in self._storage.get_run_records(PROJECT):
            if earlier["name"].rpartition(" ")[2] == sheet.key:
                self._storage.delete_run(PROJECT, earlier["name"], earlier["id"])
        self._run = self._trackio.init(
            project=PROJECT,
            name=self._name,
            group=sheet.group or None,
            config=dict(sheet.config),
            embed=False,
            auto_log_gpu=False,
        )

    def log(self, rows: Sequence[Row]) -> None:
        """Add the rows."""
        for row in rows:
            self._add(row.values, row.step)

    def end(self, ending: Ending) -> None:
        """Add the summary, finish the run, and count its rows."""
        summary = {f"summary/{name}": value for name, value in ending.summary.items()}
        self._add(summary, ending.steps)
        self._run.finish()
        kept = len(self._storage.get_logs(PROJECT, self._name))
        if kept < self._rows:
            raise OSError(f"trackio has kept {kept} of {self._rows} rows")

    def look(self, runs: Sequence[str]) -> str:
        """Return the command of Trackio's page."""
        return f"TRACKIO_DIR={shlex.quote(str(self.folder))} trackio show --project {PROJECT}"

    def _add(self, values: Mapping[str, object], step: int) -> None:
        self._run.log(dict(values), step=step)
        self._rows += 1
