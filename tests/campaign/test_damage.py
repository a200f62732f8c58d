"""Bytes of a run's files are changed anywhere: what is listed is true or called damaged, and a resume is bit for bit.

Each case draws a file, a place in it and what happens there from its number, so that a case that fails can be had
again. A few are in the quick suite, 200 in the slow one.
"""

import random
import shutil
import socket
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.config import Home
from assay.data import Prepared
from assay.records.status import Status
from assay.store import history
from assay.store.entry import Entry
from assay.store.index import Store
from assay.store.listing import reconcile
from assay.store.run_folder import Process, RunFolder
from assay.worker.main import conclude
from assay.worker.phases import Phases
from assay.worker.processes.channel import _EventsFile, _line
from assay.worker.result import Findings
from assay.worker.session import Session
from support.corpora import small_corpus
from support.runs import run_folder

STEPS, KILLED_AFTER = 12, 10
QUICK, ALL = 8, 200
TARGETS = (
    *("run.json", "result.json", "events.jsonl", "events.jsonl", "store.sqlite"),
    *(f"step-00000008/{name}" for name in ("model.safetensors", "optimizer.safetensors", "state.json")),
    *(f"step-00000004/{name}" for name in ("model.safetensors", "state.json")),
)


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
    findings = Findings(folder.spec(), phases)
    folder.begin()
    session = Session(folder, pen, phases, findings, None)
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


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    place = tmp_path_factory.mktemp("sound")
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
    folder.write_process(Process(host=socket.gethostname(), pid=2**22 + 1, started=0.0))
    return folder


def damaged(content: bytes, draw: random.Random) -> bytes:
    """The content with one bit or byte changed, some bytes lost to zeros, or the end missing."""
    place = draw.randrange(len(content))
    change: Callable[[bytes], bytes] = draw.choice(
        [
            lambda whole: whole[:place] + bytes([whole[place] ^ 1 << draw.randrange(8)]) + whole[place + 1 :],
            lambda whole: whole[:place] + bytes([draw.randrange(256)]) + whole[place + 1 :],
            lambda whole: (whole[:place] + bytes(64) + whole[place + 64 :])[: len(whole)],
            lambda whole: whole[:place],
        ]
    )
    return change(content)


def cases(count: int) -> list[Any]:
    return [pytest.param(one, marks=() if one < QUICK else pytest.mark.slow) for one in range(count)]


@pytest.mark.parametrize("number", cases(ALL))
def test_damage_is_found_or_does_no_harm(sound: Sound, tmp_path: Path, number: int) -> None:
    draw = random.Random(number)
    target = TARGETS[number % len(TARGETS)]
    truth = sound.entries()
    home = Home(shutil.copytree(sound.home.root, tmp_path / "home"))
    run = sound.done if target == "result.json" else sound.killed
    path = _path(home, run, target)
    path.write_bytes(damaged(path.read_bytes(), draw))
    _list_is_true(target, run, truth, listed(home))
    if target not in ("run.json", "result.json"):
        _goes_on_bit_for_bit(RunFolder(home.runs / run), RunFolder(sound.home.runs / sound.done))


def _path(home: Home, run: str, target: str) -> Path:
    if target == "store.sqlite":
        with sqlite3.connect(home.store) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return home.store
    if target not in ("run.json", "result.json", "events.jsonl"):
        return home.runs / run / "checkpoints" / target
    for path in home.root.glob("store.sqlite*"):
        path.unlink()  # or the list would be right for not looking
    if target != "result.json":
        (home.runs / run / "result.json").unlink(missing_ok=True)
    return home.runs / run / target


def _list_is_true(target: str, run: str, truth: dict[str, Entry], found: dict[str, Entry]) -> None:
    """All but the damaged run are listed as they are; that one as it is, or as damaged with what is left."""
    assert found.keys() == truth.keys()
    for name in found.keys() - {run}:
        assert _figures(found[name]) == _figures(truth[name])
    if found[run].status == Status.DAMAGED:
        assert target in ("run.json", "result.json", "events.jsonl")
        return
    if target == "events.jsonl" and found[run].steps != truth[run].steps:
        assert (found[run].steps or 0) < KILLED_AFTER, "a log without its end is that of an earlier kill"
        return
    assert _figures(found[run]) == _figures(truth[run])


def _figures(entry: Entry) -> Entry:
    """Without what is another one in each home, and what only the process knew."""
    return entry._replace(stamp=0)


def _goes_on_bit_for_bit(folder: RunFolder, whole: RunFolder) -> None:
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
