"""A tracker's process, as its parent sees it: requests are lines, answers have a limit, and failures are sentences.

The process is in a session of its own, so that a terminal's Ctrl-C does not reach the library. It ends when its
standard input closes.
"""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from assay.config.home import Home
from assay.platforms import kill_group, own_session
from assay.tracking import TRACKERS, tracker

_SENDER = (sys.executable, "-P", "-m", "assay.tracking.sender")
_END_SECONDS = 30.0
"""Time in which the process must end once its input has closed."""


class Failed(Exception):
    """A tracker could not copy a run. The message is the reason."""


class TrackerProcess:
    """The process that copies runs to one tracker, started when it is first needed."""

    def __init__(self, name: str, folder: Path, home: Home) -> None:
        self.name, self.folder = name, folder
        self._home = home
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._words: IO[bytes] | None = None

    def look(self, runs: list[str]) -> str:
        """Return the command that shows the copies of these runs."""
        return tracker(self.name, self.folder).look(runs)

    def start(self) -> bool:
        """Start the process, and return True; False if it runs already. Raises `Failed`."""
        if self._process is not None:
            return False
        try:
            self._words = tempfile.TemporaryFile()  # noqa: SIM115 closed with the process
            self._process = subprocess.Popen(
                [*_SENDER, self.name, str(self.folder), str(self._home.root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._words,
                env=_surroundings(self.name, self.folder),
                **own_session(),
            )
        except OSError as error:
            raise Failed(f"its process could not be started: {error.strerror or error}") from error
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()
        return True

    def request(self, do: str, **facts: str) -> None:
        """Write one request. Raises `Failed` if the process has ended."""
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **facts}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self.answer("sent", _END_SECONDS)  # the process has ended, and perhaps has said why

    def answer(self, kind: str, seconds: float) -> None:
        """Wait for an answer of this kind. Raises `Failed` if there is none within some seconds, or for a failure."""
        while True:
            try:
                said = self._answers.get(timeout=seconds)
            except queue.Empty:
                raise Failed(f"no answer within {seconds:g} s") from None
            if said is None:
                raise Failed(self._ended())
            if "failed" in said:
                raise Failed(said["failed"])
            if kind in said:
                return

    def close(self, seconds: float = _END_SECONDS) -> None:
        """Let the process end, and kill it with all that its library started after some seconds."""
        if self._process is None:
            return
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
        if self._words is not None:
            self._words.close()

    def kill(self) -> None:
        """Kill the process with all that its library started, unless it has ended."""
        if self._process is not None and self._process.poll() is None:
            kill_group(self._process.pid)
            self._process.wait()

    def _listen(self, answers: IO[bytes]) -> None:
        with answers:
            for line in answers:
                with suppress(ValueError):
                    self._answers.put(json.loads(line))
        self._answers.put(None)

    def _ended(self) -> str:
        """Return how the process ended, with the last line that it printed."""
        assert self._process is not None
        assert self._words is not None
        code = self._process.wait(timeout=_END_SECONDS)
        self._words.seek(0)
        lines = self._words.read().decode(errors="replace").strip().splitlines()
        return f"its process ended with exit code {code}" + (f": {lines[-1].strip()}" if lines else "")


def _surroundings(name: str, folder: Path) -> dict[str, str]:
    """Return the environment of the process: the tracker's own variables, and none that a user set for the library."""
    prefix = TRACKERS[name].prefix
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(prefix)}
    return {**inherited, **tracker(name, folder).surroundings()}
