"""An executor of the kind of Ray's and Slurm's, whose processes are started here, two at once."""

import subprocess
import sys
from typing import ClassVar

import pytest

from assay import executors
from assay.executors.base import Executor, Work
from assay.executors.elsewhere import LEASHED, Elsewhere, WaveFiles
from support import fake_wave


class Process:
    """A process that was submitted."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE)

    def alive(self) -> bool:
        return self.process.poll() is None

    def cancel(self) -> None:
        self.process.kill()


class Here(Elsewhere):
    """Submits waves to this machine, two at once."""

    name: ClassVar[str] = "here"
    submitted: ClassVar[list[Process]] = []

    def open(self, work: Work) -> int:
        return 2

    def submit(self, files: WaveFiles, cores: int) -> Process:
        self.submitted.append(Process([sys.executable, fake_wave.__file__, *files.command[-2:], LEASHED]))
        return self.submitted[-1]


def known_as_here(monkeypatch: pytest.MonkeyPatch, kind: type[Executor] = Here) -> None:
    """Have it in the place of Ray."""
    monkeypatch.setattr(executors, "extension_folder", lambda kind: None)
    monkeypatch.setattr(executors, "Ray", kind)
    monkeypatch.setattr(Here, "submitted", [])
