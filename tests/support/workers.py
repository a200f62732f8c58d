"""The measured child: as a real process with its parent's ends of the pipes, and its work done in this process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from assay.records.run import RunResult
from assay.store.run_folder import RunFolder
from assay.worker import session as worker_session
from assay.worker.main import conclude
from assay.worker.phases import Phases
from assay.worker.processes.channel import ParentChannel
from assay.worker.proof.process import ReferenceProcess
from assay.worker.result import RunFindings
from support.forked import Forked

WORKER = (sys.executable, "-m", "assay.worker")


class Process:
    """A child and its parent's end of the pipes; it is killed when the test is over."""

    def __init__(
        self,
        folder: RunFolder,
        *arguments: str,
        start: type["subprocess.Popen[bytes]"] = subprocess.Popen,
        **options: Any,
    ) -> None:
        self.folder = folder
        self.child = start(
            [*WORKER, str(folder.path), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=folder.log_file.open("ab"),
            start_new_session=True,
            **options,
        )

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.wait()
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def events(self) -> Iterator[dict[str, Any]]:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            yield json.loads(line)

    def until(self, kind: str, **values: Any) -> dict[str, Any]:
        """The next event of this kind and with these values."""
        for event in self.events():
            if event["event"] == kind and all(event[name] == value for name, value in values.items()):
                return event
        raise AssertionError(f"there was no {kind} {values}; the log says:\n{self.folder.log_file.read_text()}")

    def go(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(b"go\n")
        self.child.stdin.flush()

    def end(self) -> tuple[int, list[dict[str, Any]]]:
        """(exit code, the events that were left)"""
        left = list(self.events())
        return self.child.wait(timeout=30), left


def finished(
    folder: RunFolder, *arguments: str, start: type["subprocess.Popen[bytes]"] = Forked, **options: Any
) -> tuple[int, RunResult]:
    """Exit code and result of a child that nobody disturbs."""
    with Process(folder, *arguments, start=start, **options) as process:
        code, events = process.end()
    result = folder.result()
    assert result is not None, folder.log_file.read_text()
    assert code == result.status.exit_code
    assert (events[-1]["event"], events[-1]["status"]) == ("end", result.status)
    return code, result


def ended(folder: RunFolder, voice: type[ParentChannel] = ParentChannel, turns: int | None = None) -> RunResult:
    """The result of a run, as `worker.main` would write it."""
    _, out = os.pipe()
    requests, _ = os.pipe()
    channel = voice(folder.events_file, os.open(os.devnull, os.O_WRONLY), requests, in_turns=False)
    os.close(out)
    phases = Phases(channel, "import", 0.0)
    findings = RunFindings(folder.spec(), phases)
    session = worker_session.Session(
        folder, channel, phases, findings, turns, ReferenceProcess.of(folder, folder.spec().config)
    )
    return findings.result(*conclude(session.work, lambda: f"in the phase {phases.current}"))
