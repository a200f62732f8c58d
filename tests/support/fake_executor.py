"""An executor of the kind of Ray's and Slurm's, whose processes are started here, two at once."""

import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import pytest

from assay import executors
from assay.executors.base import Executor, Work
from assay.executors.elsewhere import LEASHED, Elsewhere, WaveFiles
from support import fake_wave
from support.forked import Forked


class Process:
    """A process that was submitted. It works in the folder of its study, by which it is found."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.process = Forked(command, stdin=subprocess.PIPE, cwd=folder)

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
        command = [sys.executable, fake_wave.__file__, *files.command[-2:], LEASHED]
        self.submitted.append(Process(command, files.folder))
        return self.submitted[-1]


def known_as_here(monkeypatch: pytest.MonkeyPatch, kind: type[Executor] = Here) -> None:
    """Have it in the place of Ray."""
    monkeypatch.setattr(executors, "extension_folder", lambda kind: None)
    monkeypatch.setattr(executors, "Ray", kind)
    monkeypatch.setattr(Here, "submitted", [])
