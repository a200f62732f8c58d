"""Weights & Biases: a folder for each run, as its offline mode writes it. `wandb sync` uploads it, if you ask it to.

Nothing is sent and no account is needed. The library starts a service of its own, which ends with its process. Times
are those of the copy, because the library stamps what it is given.
"""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from assay.tracking.base import PROJECT, Ending, Row, Sheet, Tracker, safe

_FOLDER = "offline-run-????????_??????-{key}"
"""Pattern of the folder of a run, in which the library puts the time of its beginning."""


class WandB(Tracker):
    """Writes folders of offline runs."""

    name: ClassVar[str] = "wandb"
    prefix: ClassVar[str] = "WANDB_"

    def surroundings(self) -> Mapping[str, str]:
        """Return variables that keep the library offline, and its files in the folder."""
        places = ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR", "WANDB_ARTIFACT_DIR")
        off = {"WANDB_MODE": "offline", "WANDB_CONSOLE": "off", "WANDB_SILENT": "true"}
        return {**dict.fromkeys(places, str(self.folder)), **off, "WANDB_ERROR_REPORTING": "false"}

    def load(self) -> None:
        """Import the library."""
        import wandb

        self._wandb: Any = wandb

    def begin(self, sheet: Sheet) -> None:
        """Begin an offline run, and remove the folder of an earlier copy."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for earlier in (self.folder / "wandb").glob(_FOLDER.format(key=sheet.key)):
            shutil.rmtree(earlier)
        settings = self._wandb.Settings(x_disable_stats=True, x_disable_meta=True, disable_git=True, disable_code=True)
        self._run: Any = self._wandb.init(
            project=PROJECT,
            id=sheet.key,
            name=sheet.title,
            group=sheet.group or None,
            config=dict(sheet.config),
            dir=str(self.folder),
            mode="offline",
            settings=settings,
        )

    def log(self, rows: Sequence[Row]) -> None:
        """Add the rows to the run's history."""
        for row in rows:
            self._run.log(dict(row.values), step=row.step)

    def end(self, ending: Ending) -> None:
        """Add the summary, and finish the run."""
        self._run.summary.update(dict(ending.summary))
        self._run.finish(exit_code=0 if ending.status.finished else 1)

    def look(self, runs: Sequence[str]) -> str:
        """Return the command that uploads the copies."""
        key = safe(runs[0]) if len(runs) == 1 else "*"
        return f"wandb sync {shlex.quote(str(self.folder / 'wandb'))}/{_FOLDER.format(key=key)}"
