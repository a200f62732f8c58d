"""The reference process as a run sees it: started with the run, asked once, and read from its answer.

It starts before the run imports torch, and imports the same modules beside it on another core. Then it waits, so it
computes nothing while the run is measured. A run that ends, in any way, closes its standard input and thereby ends it.
"""

import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from assay.records.evidence import ValueProof
from assay.store.run_folder import RunFolder

if TYPE_CHECKING:
    from assay.config.run import ResolvedRun

COMMAND = (sys.executable, "-m", "assay.worker.proof.reference")
CHECK = b"check\n"
"""The word on standard input that has the process check the record of the run's values."""


def values_folder(folder: RunFolder) -> Path:
    """Folder of the recorded values of a run, of the process's log and of its answer."""
    return folder.path / "values"


class ReferenceProcess:
    """A process that checks the recorded values of the run in `folder` when it is asked."""

    def __init__(self, folder: RunFolder) -> None:
        self._place = values_folder(folder)
        shutil.rmtree(self._place, ignore_errors=True)  # of a process that was killed
        self._place.mkdir()
        with (self._place / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*COMMAND, str(folder.path)], stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
            )
        self._asked = 0.0

    @classmethod
    def of(cls, folder: RunFolder, run: "ResolvedRun") -> "ReferenceProcess | None":
        """Start the process of a run whose values are to be checked; return None for any other."""
        return cls(folder) if run.optimizations and run.training.check_values else None

    def ask(self) -> None:
        """Have it check the record, which is complete."""
        self._asked = time.perf_counter()
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended already, which `answer` says
            self._process.stdin.write(CHECK)
            self._process.stdin.flush()

    def wait(self, seconds: float) -> bool:
        """Wait at most so long for its end; return True if it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            return True
        return False

    def answer(self) -> str:
        """Return its proof as JSON, or an unchecked one that says how it ended. The process must have ended."""
        seconds = time.perf_counter() - self._asked
        self.end()
        with suppress(OSError, ValueError):
            found = ValueProof.model_validate_json((self._place / "proof.json").read_bytes())
            return found.model_copy(update={"process_seconds": seconds}).model_dump_json()
        last = ""
        with suppress(OSError):
            lines = (self._place / "log").read_text(errors="replace").strip().splitlines()
            last = f": {lines[-1]}" if lines else ""
        ended = f"the reference process ended with code {self._process.returncode}{last}"
        return ValueProof(unchecked=ended[:400]).model_dump_json()

    def end(self) -> None:
        """Kill it if it lives, and close its standard input."""
        self._process.kill()
        self._process.wait()
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
