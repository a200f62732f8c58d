"""Runs with checkpoints that the trainer's own code wrote, of weights that nothing has trained."""

from collections.abc import Callable
from pathlib import Path

import torch

from assay.config import Home, validate
from assay.data import prepare
from assay.optimizations import resolve_run
from assay.store.run_folder import RunFolder, RunSpec
from assay.training.build import baseline, build
from assay.training.checkpoints import checkpoint
from assay.training.step_record import Position

MODEL = {"n_layer": 1, "n_head": 2, "n_embd": 8, "context_length": 8}
Trained = Callable[..., RunFolder]


def maker(home: Home, tmp_path: Path) -> Trained:
    """Return a function that makes a run with a checkpoint of each of these steps; their weights differ."""
    (tmp_path / "corpus.txt").write_text("The quick brown fox jumps over the lazy dog.\n" * 50)

    def make(*steps: int, **model: object) -> RunFolder:
        run = resolve_run(
            validate({"model": {**MODEL, **model}, "data": {"path": str(tmp_path / "corpus.txt"), "tokenizer": "char"}})
        )
        data = prepare(run.data, home)
        run = run.with_vocabulary(data.vocab_size)
        folder = RunFolder(home.runs / "20260101-000000-abcdef-0001")
        spec = {"id": folder.id, "created": "now", "identity": "abcdef", "config": run, "data_folder": str(data.folder)}
        folder.prepare(RunSpec(**spec))
        for step in steps:
            seeded = run.model_copy(update={"seed": step})
            live = build(baseline(seeded, data, torch.device("cpu")))
            checkpoint.save(folder.checkpoints, live, Position(step=step), "abcdef")
        return folder

    return make
