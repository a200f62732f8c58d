"""A real comparison in which one technique starts a process that works all the time, also in the turns of others."""

import sys
from pathlib import Path

import pytest

from assay import api
from assay.analysis.metrics.standard import STEP_SECONDS
from assay.launch import spawn as launcher
from assay.records.status import Status

BUSY = """
import subprocess
import sys
from assay.optimizations.gradient_accumulation import GradientAccumulation

plain = GradientAccumulation.apply

def apply(self, program, run):
    subprocess.Popen([sys.executable, "-c", "while True: pass"], stdin=subprocess.DEVNULL)
    return plain(self, program, run)

GradientAccumulation.apply = apply
from assay.worker.processes.ends import leave
from assay.worker.main import main
leave(main())
"""
"""The worker, with an accumulation that keeps a core busy."""


@pytest.mark.slow
def test_a_row_whose_process_works_in_the_turns_of_others_has_no_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "WORKER", (sys.executable, "-P", "-c", BUSY))
    small = ("model.n_layer=1", "model.n_embd=32", "model.context_length=32", "training.steps=44")
    busy, honest = "gradient_accumulation:micro_batches=2", "sdpa_attention"
    found = api.compare("demo", *small, treatments=[busy, honest], seeds=1, processes=1, blocks=3, home=tmp_path)
    rows = {row.treatment: row for row in found.rows}
    assert rows[busy].outside is not None
    assert rows[busy].outside.too_much
    assert any(said.startswith("times are not compared: its processes used ") for said in rows[busy].flags)
    assert STEP_SECONDS.name not in rows[busy].effects
    assert rows[busy].metrics[STEP_SECONDS.name] is None
    assert rows[busy].metrics["val_loss"] is not None
    assert {row.status for row in found.rows} == {Status.DONE}
    for row in (found.baseline, found.again, rows[honest]):
        assert row.outside is not None
        assert not row.outside.too_much
        assert row.metrics[STEP_SECONDS.name] is not None
    assert STEP_SECONDS.name in rows[honest].effects
    assert all(one.disturbed for one in found.record.rounds)
