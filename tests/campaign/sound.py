"""A home with two runs whose files are whole, one done and one killed, and how the latter goes on."""

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.config import Home
from assay.data import Prepared
from assay.records.status import Status
from assay.store import history
from assay.store.index import Entry, Store, reconcile
from assay.store.run_folder import RunFolder, RunProcess
from assay.worker.main import conclude
from assay.worker.phases import Phases
from assay.worker.processes.channel import _EventsFile, _line
from assay.worker.proof.process import ReferenceProcess
from assay.worker.result import RunFindings
from assay.worker.session import Session
from support.corpora import small_corpus
from support.runs import run_folder

STEPS, KILLED_AFTER = 12, 10


class Killed(BaseException):
    """In the place of a signal: nothing may be done after it."""


class Pen:
    """The voice of a run in this process: it writes events, and dies after the step that it is told."""

    interrupted = False

    def __init__(self, events: Path, dies_after: int | None) -> None:
        self._file, self._dies_after = _EventsFile(events), dies_after

    def event(self, kind: str, **values: Any) -> None:
        self._file.append(_line({"event": kind, **values}))
        if kind == "step" and values["step"] + 1 == self._dies_after:
            raise Killed

    def wait(self, upcoming: str) -> None: ...
    def stop_on_signals(self) -> None: ...


def work(folder: RunFolder, dies_after: int | None = None) -> None:
    """Do a run, or go on with it, as the worker does."""
    pen = Pen(folder.events_file, dies_after)
    phases = Phases(pen, "import", 0.0)
    findings = RunFindings(folder.spec(), phases)
    folder.begin()
    session = Session(folder, pen, phases, findings, None, ReferenceProcess.of(folder, folder.spec().config))
    ended = conclude(session.work, lambda: phases.current)
    folder.write_result(findings.result(*ended))


@dataclass(frozen=True)
class Sound:
    """Runs whose files are whole: one that was done, and one that was killed."""

    home: Home
    done: str
    killed: str

    def entries(self) -> dict[str, Entry]:
        return listed(self.home)


def listed(home: Home) -> dict[str, Entry]:
    return {entry.run: entry for entry in reconcile(home, Store(home)).entries}


def sound_runs(place: Path) -> Sound:
    """Train two runs in a home below `place`."""
    corpus, home = small_corpus(place), Home(place / "home").ready()
    folders = {name: _folder(home, corpus, name) for name in ("done", "killed")}
    work(folders["done"])
    with pytest.raises(Killed):
        work(folders["killed"], KILLED_AFTER)
    return Sound(home, folders["done"].id, folders["killed"].id)


def _folder(home: Home, corpus: Prepared, name: str) -> RunFolder:
    training = {"steps": STEPS, "checkpoint_interval": 4, "eval_interval": 6}
    path = home.runs / f"20260101-000000-abcdef-0000-{name}"
    folder = run_folder(path, corpus, training, model={"dropout": 0.1})
    folder.write_process(RunProcess(host=socket.gethostname(), pid=2**22 + 1, started=0.0))
    return folder


def goes_on_bit_for_bit(folder: RunFolder, whole: RunFolder) -> None:
    work(folder)
    result, straight = folder.result(), whole.result()
    assert result is not None
    assert straight is not None
    assert (result.status, result.steps, result.tokens) == (Status.DONE, STEPS, straight.tokens)
    assert (result.train_loss, result.val_loss) == (straight.train_loss, straight.val_loss)
    found = {step.step: step.loss for step in history.steps(folder.events())}
    expected = {step.step: step.loss for step in history.steps(whole.events())}
    assert found.items() <= expected.items()
    assert max(found) == STEPS - 1
    for name in ("model.safetensors", "optimizer.safetensors"):
        last = f"checkpoints/step-{STEPS:08d}/{name}"
        assert (folder.path / last).read_bytes() == (whole.path / last).read_bytes()
