"""Runs whose processes others started: by torchrun, and their meeting with a table in the store's place."""

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from assay.config import Home
from assay.errors import UsageError
from assay.parallel import process_rank as meeting_module
from assay.records.status import Status
from assay.store.index import Store
from assay.store.lookup import find
from assay.worker.processes.torchrun import Asked, join_run
from support.forked import fork_children

SHAPE = ("model.n_layer=1", "model.n_head=2", "model.n_embd=16", "model.context_length=16", "training.batch_size=4")
SHAPE = (*SHAPE, "data.tokenizer=byte", "training.eval_interval=0", "training.measure_memory=false", "threads=1")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
_PATIENCE_SECONDS = 300


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    home = Home(tmp_path / "home")
    monkeypatch.setenv("ASSAY_HOME", str(home.root))
    return home


@pytest.fixture
def text(tmp_path: Path) -> str:
    path = tmp_path / "text.txt"
    path.write_text("All happy families are alike. " * 200)
    return f"data.path={path}"


def torchrun(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [*TORCHRUN, "-m", "assay.worker", *words]
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=surroundings, timeout=_PATIENCE_SECONDS
    )


def test_torchrun_does_a_run_and_goes_on_with_it(home: Home, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unchecked = "training.check_values=false"
    done = torchrun("demo", *SHAPE, text, unchecked, "training.steps=6", "--with", "data_parallel")
    assert done.returncode == 0, done.stderr
    folder = find(home, "last")
    result = folder.result()
    assert result is not None
    assert (result.status, result.steps, result.config.ranks) == (Status.DONE, 6, 2)
    assert [one.verdict for one in result.evidence] == [True]
    assert f"run {folder.id}: 6 steps of 64 tokens" in done.stderr
    assert "step 6/6, loss" in done.stderr
    entry = Store(home).entries()[folder.id]
    assert (entry.status, entry.stamp, entry.preset) == (Status.DONE, folder.stamp(), "demo")
    fork_children(monkeypatch)
    more = torchrun("--resume", "last", "training.steps=8", "--with", "fully_sharded")
    assert more.returncode == 0, more.stderr
    again = folder.result()
    assert again is not None
    assert (again.status, again.steps) == (Status.DONE, 8)
    assert [one.name for one in again.config.optimizations] == ["fully_sharded"]
    assert "continuing after step 6" in more.stderr


@dataclass
class Seat:
    """One process's place at a table that stands in the store's place; what it hears may be another's word."""

    table: dict[str, "queue.SimpleQueue[str]"]
    rank: int
    world: int = 2
    world_here: int = 2
    mishears: dict[str, str] = field(default_factory=dict)

    def say(self, key: str, text: str) -> None:
        self.table[key].put(text)

    def hear(self, key: str) -> str:
        word = self.table[key].get(timeout=60)
        return self.mishears.get(key, word)


def refusals(monkeypatch: pytest.MonkeyPatch, words: Sequence[str], **mishears: str) -> list[str]:
    """What both ranks of two are told that cannot begin."""
    keys = ("assay/folder", "assay/seen/1", "assay/begin")
    table: dict[str, queue.SimpleQueue[str]] = {key: queue.SimpleQueue() for key in keys}
    seats = [Seat(table, 0), Seat(table, 1, mishears={f"assay/{key}": word for key, word in mishears.items()})]
    own = threading.local()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(meeting_module, "meeting", lambda: own.seat)
    told = ["", ""]

    def come(rank: int) -> None:
        own.seat = seats[rank]
        try:
            with join_run(Asked("demo", words)):
                pass
        except UsageError as error:
            told[rank] = str(error)

    threads = [threading.Thread(target=come, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


def test_a_run_that_rank_0_refuses_is_refused_by_all(home: Home, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = refusals(monkeypatch, [*SHAPE, text])
    assert one.startswith("2 processes were started, but the run uses one device; name techniques")
    assert other == one
    one, other = refusals(monkeypatch, [*SHAPE, "training.step=4"])
    assert "did you mean 'training.steps'" in one
    assert other == one
    assert not list(home.runs.glob("*"))


def test_a_host_that_does_not_see_the_folder_is_named(
    home: Home, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = f'{{"folder": "{tmp_path / "elsewhere"}"}}'
    told = refusals(monkeypatch, [*SHAPE, text, "optimizations=data_parallel", "oversubscribe=true"], folder=elsewhere)
    assert all(one.endswith("set ASSAY_HOME to a folder that all hosts share") for one in told)
    assert not list(home.runs.glob("*"))


def test_without_torchrun_a_preset_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with (
        pytest.raises(UsageError, match="start the worker under torchrun, or use assay train demo"),
        join_run(Asked("demo")),
    ):
        pass
