"""Studies whose cells are fake workers, run by any executor."""

import sys

import pytest

from assay.config import Home, validate
from assay.executors.base import News
from assay.launch import spawn
from assay.records.study import ComparisonRecord
from assay.studies.execution import ready as preparing
from assay.studies.execution import run as module
from support import fake_wave
from support.children import NO_SERVER
from support.designs import design

BASE = validate(
    {
        "model": {"n_layer": 1, "n_head": 1, "n_embd": 8, "context_length": 8, "vocab_size": 256},
        "training": {"steps": 6, "batch_size": 4},
    }
)
CELLS = design(BASE, ["sdpa_attention"], seeds=2)


def fake_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all cells be fake workers, whose environment counts as this machine's."""
    monkeypatch.setattr(spawn, "WORKER", (sys.executable, "-S", str(fake_wave.FAKE_WORKER)))
    monkeypatch.setattr(spawn, "FORK_SERVER", NO_SERVER)
    monkeypatch.setattr(preparing, "ready", fake_wave.no_corpus)
    monkeypatch.setattr(module, "elsewhere", lambda cells, machine, digest: {})
    monkeypatch.delenv("FAKE", raising=False)


def silent(message: str, fraction: float | None) -> None:
    pass


def run(home: Home, executor: str, heard: list[News] | None = None, timed: bool = True) -> ComparisonRecord:
    tell = (lambda news: None) if heard is None else heard.append
    return module.measure_design(
        CELLS, BASE, module.Execution(home, 2, None, "test", silent, tell, executor, timed=timed)
    )


def shape(record: ComparisonRecord) -> dict[str, object]:
    """What a record has of each cell, without times and names of runs."""
    return {
        one.cell.name: (one.wave, one.result.status, one.curve, one.result.memory.tensors_peak_bytes)
        for one in sorted(record.cells, key=lambda one: one.cell.name)
    }
