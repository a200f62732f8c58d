"""A real comparison in which one technique computes another loss than it promises, and another does what it should."""

import sys
from pathlib import Path

import pytest

from assay import api
from assay.launch import spawn as launcher
from assay.records.status import Status

FORGETFUL = """
import sys
from assay.model import loss

whole = loss._InPieces.forward

def forward(ctx, x, weight, targets, chunks, *rest):
    kept = targets.clone()
    kept.tensor_split(chunks)[-1].fill_(loss.NOT_COUNTED)
    return whole(ctx, x, weight, kept, chunks, *rest)

loss._InPieces.forward = staticmethod(forward)
from assay.worker.processes.ends import leave
from assay.worker.main import main
leave(main())
"""
"""The worker, with a chunked loss that forgets its last piece."""


@pytest.mark.slow
def test_a_chunked_loss_that_forgets_its_last_piece_has_wrong_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "WORKER", (sys.executable, "-P", "-c", FORGETFUL))
    small = ("model.n_layer=1", "model.n_embd=32", "model.context_length=32", "training.steps=24")
    wrong, honest = "chunked_cross_entropy:chunks=8", "gradient_accumulation:micro_batches=2"
    found = api.compare("demo", *small, treatments=[wrong, honest], seeds=1, blocks=1, home=tmp_path)
    rows = {row.treatment: row for row in found.rows}
    assert rows[wrong].status is Status.WRONG_VALUES
    said = " ".join((rows[wrong].reason or "", *rows[wrong].flags))
    assert "the training loss of step 0 at seed 0 is " in said
    assert (rows[honest].status, rows[honest].flags) == (Status.DONE, ())
    assert found.failed
    (nudged,) = found.record.nudged
    assert (nudged.result.status, len(nudged.curve.train_loss)) == (Status.DONE, 24)
    baseline = found.record.references[0].curve.train_loss
    assert nudged.curve.train_loss != baseline
    assert nudged.curve.train_loss == pytest.approx(baseline, rel=1e-5)
