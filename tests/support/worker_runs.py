"""Tiny runs for the measured child: a corpus, and a folder as the launcher leaves it."""

from pathlib import Path
from typing import Any

from assay.config import DataConfig, Home, identity, validate
from assay.data import Prepared, prepare
from assay.optimizations import resolved
from assay.store.run_folder import RunFolder, RunSpec

TEXT = "\n".join(f"{n} bottles of milk stand on the wall, {n * n % 97} of them are green." for n in range(400))


def small_corpus(folder: Path) -> Prepared:
    """Some 24 kB of text, byte by byte."""
    (folder / "text.txt").write_text(TEXT)
    return prepare(DataConfig(path=str(folder / "text.txt"), tokenizer="byte"), Home(folder / "home"))


def run_folder(path: Path, corpus: Prepared, training: dict[str, Any], **run: Any) -> RunFolder:
    """The folder of a run of a two-layer model of width 16."""
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 16, "context_length": 16, "vocab_size": 256}
    values = {"batch_size": 4, "eval_interval": 0, "eval_batches": 2, "measure_memory": False}
    model = {**shape, **run.pop("model", {})}
    plain = {"model": model, "training": {**values, **training}, "device": "cpu", "threads": 1, **run}
    config = resolved(validate(plain))
    folder = RunFolder(path)
    folder.prepare(
        RunSpec(
            id=folder.id,
            created="2026-11-21T08:00:00+00:00",
            identity=identity(config),
            config=config,
            data_folder=str(corpus.folder),
        )
    )
    return folder
