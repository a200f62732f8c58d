"""A fault of one rank in the middle of a run ends all ranks, through the product."""

from pathlib import Path

import pytest

from assay import api
from assay.config import Home
from assay.optimizations import forget, search
from assay.records.status import Status

SOURCE = """
from dataclasses import replace

import torch

from assay.optimizations.fully_sharded import FullySharded
from assay.parallel.dtensor import local


class Forgetful(FullySharded):
    def apply(self, program, run):
        after, done = super().apply(program, run), [0]

        def update(step):
            kept = [local(one).detach().clone() for _, one in step.named_parameters()]
            norm = after.update(step)
            done[0] += 1
            if done[0] == {lost} and torch.distributed.get_rank() == 1:
                for (_, one), was in zip(step.named_parameters(), kept):
                    local(one).data.copy_(was)
            return norm

        return replace(after, update=update)
"""
RUN = ("model.n_layer=2", "model.n_head=2", "model.n_embd=16", "model.context_length=16", "training.batch_size=4")
RUN = (*RUN, "training.steps=10", "data.tokenizer=byte", "ranks=2", "training.eval_batches=1", "threads=1")
RUN = (*RUN, "training.eval_interval=0", "training.measure_memory=false")
LOST = 5
"""An update that no replay draws at this seed."""


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, LOST])
def test_an_update_that_one_rank_loses_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    (tmp_path / "mine" / "optimizations").mkdir(parents=True)
    (tmp_path / "mine" / "optimizations" / "forgetful.py").write_text(SOURCE.format(lost=lost))
    (tmp_path / "text.txt").write_text("All happy families are alike. " * 200)
    monkeypatch.setenv("ASSAY_EXTENSIONS", str(tmp_path / "mine"))
    added = search(tmp_path / "mine" / "optimizations")
    try:
        run = (*RUN, f"data.path={tmp_path / 'text.txt'}")
        found = api.train("demo", *run, optimizations="forgetful", home=Home(tmp_path / "home"))
    finally:
        forget(added)
    if not lost:
        assert (found.status, found.proven_until) == (Status.DONE, "end"), found.reason
        return
    assert found.status is Status.WRONG_VALUES
    assert (found.reason or "").endswith(f"in step {LOST - 1} on rank 1")
