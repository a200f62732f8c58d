"""A run that is recorded: two evaluations, a timed block, a proof, peaks measured and predicted."""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.config import Home
from assay.launch import prepare
from assay.records.events import event_of
from assay.records.evidence import Evidence, ValueProof
from assay.records.prediction import Memory, Predicted
from assay.records.run import Proof, RunResult
from assay.records.status import Status
from assay.store.result import RunFigures, result_of
from assay.store.run_folder import RunFolder, RunSpec
from support.children import Fake, make_ready
from support.records import say

STARTED = 1.7e9
RATE = 0.1
"""Learning rate of every step."""

EVENTS: tuple[dict[str, Any], ...] = (
    {"event": "start", "time": STARTED, "resumed_at": 0},
    *(
        {
            "event": "step",
            "step": index,
            "loss": 3.0 - 0.1 * index,
            "seconds": 0.5,
            "tokens": 16,
            "phase": "steady",
            "learning_rate": RATE,
            "log_gradient_norm": math.log(2.0),
        }
        for index in range(4)
    ),
    {
        "event": "block",
        "steps": 2,
        "seconds": 1.0,
        "median_step_seconds": 0.5,
        "tokens": 32,
        "process_peak_bytes": 3_000_000_000,
    },
    {"event": "evaluation", "step": 4, "loss": 2.5, "perplexity": 12.2, "bits_per_byte": 3.6},
)
TINY = (
    *("model.n_layer=1", "model.n_head=1", "model.n_embd=8", "model.context_length=8"),
    *("training.batch_size=2", "training.steps=4"),
)
Recorded = Callable[..., RunFolder]


def record(home: Home, run: str = "20260101-000000-abcdef-0001-best", **training: object) -> RunFolder:
    """Write the folder of a finished run."""
    ready = make_ready(home, 4, **training)
    folder = RunFolder(home.runs / run)
    spec = RunSpec(
        id=run,
        created="2026-01-01T00:00:00+00:00",
        identity=ready.identity,
        preset="demo",
        config=ready.run,
        data_folder="",
        predicted=Predicted(tensors_peak_bytes=990, step_seconds=0.4),
    )
    folder.prepare(spec)
    say(folder, *EVENTS)
    folder.write_result(result(spec))
    return folder


def result(spec: RunSpec) -> RunResult:
    figures = RunFigures.of_events(list(map(event_of, EVENTS)))
    evidence = (Evidence(optimization="lion", observed="2 of 2 parameters", verdict=True),)
    figures.proof = Proof(evidence=evidence, values=ValueProof(verdict=True))
    memory = Memory(tensors_peak_bytes=1000, process_peak_bytes=3_000_000_000)
    return result_of(spec, Status.DONE, None, figures, memory=memory, parameters=50_000)


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    path = tmp_path / "corpus.txt"
    path.write_text("The quick brown fox jumps over the lazy dog.\n" * 50)
    return f"data.path={path}"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.setattr(prepare, "predict", lambda run, machine: Predicted(tensors_peak_bytes=990))
    return Fake(monkeypatch)


@pytest.fixture
def recorded(home: Home) -> Recorded:
    return lambda *given, **training: record(home, *given, **training)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put a library in the place of wandb, whose runs do what the given line of code says when a row is logged."""

    def behaves(line: str, top: str = "") -> None:
        folder = tmp_path / "libraries"
        folder.mkdir(exist_ok=True)
        (folder / "wandb.py").write_text(STAND_IN.format(line=line, top=top))
        monkeypatch.setenv("PYTHONPATH", str(folder))
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, "wandb", raising=False)

    return behaves


STAND_IN = """
{top}
import json, os, sys, time
from pathlib import Path

class Settings:
    def __init__(self, **given): pass

class Run:
    def __init__(self, **given):
        self.given, self.summary, self.rows = given, {{}}, []
    def log(self, values, step):
        {line}
        self.rows.append([step, values])
    def finish(self, exit_code):
        print("noise of a library")
        kept = {{"rows": self.rows, "summary": self.summary, "exit_code": exit_code, "given": {{
            key: value for key, value in self.given.items() if key != "settings"}}}}
        Path(self.given["dir"], self.given["id"] + ".json").write_text(json.dumps(kept))

def init(**given):
    return Run(**given)
"""
