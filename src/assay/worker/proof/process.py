"""The reference process as a run sees it: started with the run, asked as often as the run recorded some steps.

A run forks it once torch is imported, before anything is computed: imports take longer than most of a short run. A
system that cannot fork starts it before the run imports torch, and both import at once. It builds the reference
programs while the run builds its own. Then it waits, so it computes nothing while the run is measured. A run that ends,
in any way, closes its standard input and thereby ends it.
"""

import importlib
import queue
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import first_line
from assay.platforms import CAN_FORK_WITH_THREADS, Fork
from assay.records.evidence import ValueProof
from assay.store.run_folder import RunFolder
from assay.worker.processes.fork_server import uses_cuda

if TYPE_CHECKING:
    from assay.config.run import ResolvedRun

COMMAND = (sys.executable, "-m", "assay.worker.proof.reference")
NOT_SHARED = "the record in the GPU's memory cannot be opened"
"""Why a record is not checked that its run can write to files."""
ANSWER = "proof.json"
"""File beside a record with its proof."""
_LAST_SECONDS = 5.0
"""Time for a process that has closed its output to end with a code of its own."""


def _check_when_asked(place: str) -> int:
    code: int = importlib.import_module(COMMAND[-1]).main(place)
    return code


def values_folder(folder: RunFolder) -> Path:
    """Folder of the process's log, and of the recorded values of each part of a run with their proof."""
    return folder.path / "values"


class ReferenceProcess:
    """A process that checks recorded values of the run in `folder`, part by part, when it is asked."""

    def __init__(self, folder: RunFolder, *, forked: bool = False) -> None:
        self._place = values_folder(folder)
        shutil.rmtree(self._place, ignore_errors=True)  # of a process that was killed
        self._place.mkdir()
        with (self._place / "log").open("wb") as log:
            self._process: Fork | subprocess.Popen[bytes] = (
                Fork(partial(_check_when_asked, str(folder.path)), log)
                if forked
                else subprocess.Popen(
                    [*COMMAND, str(folder.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
                )
            )
        self._asked = 0.0
        self._words: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._word: bytes | None = None
        # Not every system can wait for a pipe with a limit of time, so a thread reads it.
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        """Pass on each answer, and at the end of the process an empty one."""
        assert self._process.stdout is not None
        with suppress(OSError, ValueError):  # closed meanwhile
            while word := self._process.stdout.read(1):
                self._words.put(word)
        self._words.put(b"")

    @classmethod
    def of(cls, folder: RunFolder, run: "ResolvedRun") -> "ReferenceProcess | None":
        """Start the process of a run whose values are to be checked; return None for any other.

        It is a fork of this process, unless the system cannot fork or this process has started CUDA.
        """
        if not (run.optimizations and run.training.check_values):
            return None
        return cls(folder, forked=CAN_FORK_WITH_THREADS and not uses_cuda())

    def ask(self, part: str) -> None:
        """Have it check the record of a part of the run, which is complete, in the folder of that name."""
        self._asked = time.perf_counter()
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended already, which `answer` says
            self._process.stdin.write(f"{part}\n".encode())
            self._process.stdin.flush()

    def wait(self, seconds: float) -> bool:
        """Wait at most so long for its answer; return True if it has answered or ended."""
        if self._word is None:
            with suppress(queue.Empty):
                self._word = self._words.get(timeout=seconds)
        return self._word is not None

    def answer(self, part: str) -> str:
        """Return its proof of a part as JSON, or one that says how the process ended; `wait` has returned True."""
        seconds, word, self._word = time.perf_counter() - self._asked, self._word, None
        unreadable = ""
        if not word:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_LAST_SECONDS)
        else:
            try:
                found = ValueProof.model_validate_json((self._place / part / ANSWER).read_bytes())
                return found.model_copy(update={"process_seconds": seconds}).model_dump_json()
            except (OSError, ValueError) as error:
                unreadable = f"the answer of the reference process cannot be read: {first_line(error)}"
        self.end()
        return ValueProof(broken=(unreadable or self._how_it_ended())[:400]).model_dump_json()

    def _how_it_ended(self) -> str:
        last = ""
        with suppress(OSError):
            lines = (self._place / "log").read_text(errors="replace").strip().splitlines()
            last = f": {lines[-1]}" if lines else ""
        return f"the reference process ended with code {self._process.returncode}{last}"

    def end(self) -> None:
        """Kill it if it lives, and close its standard input."""
        self._process.kill()
        self._process.wait()
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
