"""The model of docs/own-model.md on batches of its own: runs, resumes, comparisons, and what their reports say."""

import re
from pathlib import Path

import pytest

import assay
from assay.api.result_types import TrainedRun
from assay.config.run import OwnRows
from assay.errors import UsageError
from assay.report.kit.blocks import plain_text
from assay.report.kit.view import render
from assay.store.run_folder import RunFolder
from assay.training.checkpoints import checkpoint
from support.docs import DOCS

PAGE = (DOCS / "own-model.md").read_text(encoding="utf-8")
WAVES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)[-2]
NORMED = """

class Normed(Waves):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(2, 32), nn.BatchNorm1d(32))


def normed():
    return assay.OwnModel(Normed(), loss, batches, validation)


def late(rows):
    yield from validation(rows)
    raise OSError("the disk is gone")


def failing():
    return assay.OwnModel(Waves(), loss, batches, late)


def blind():
    return assay.OwnModel(Waves(), loss, batches)
"""
SHORT = ("training.steps=6", "training.batch_size=16", "training.warmup_steps=2")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the page's file, and a short text, so that no long one is prepared."""
    (tmp_path / "waves.py").write_text(WAVES + NORMED)
    (tmp_path / "text.txt").write_text("Some words, again and again. " * 200)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained(name: str, folder: Path, *more: str, optimizations: str = "") -> TrainedRun:
    text = f"data.path={folder / 'text.txt'}"
    return assay.train(f"waves.py:{name}", *SHORT, text, *more, optimizations=optimizations or (), home=folder / "home")


@pytest.mark.usefixtures("forked")
def test_the_model_of_the_page_trains_with_proven_techniques(folder: Path) -> None:
    stack = "activation_checkpointing+smaller_batch+gradient_accumulation:micro_batches=2+loader_workers:workers=1"
    run = trained("waves", folder, optimizations=stack)
    assert run.status.value == "done", run.reason
    assert [one.verdict for one in run.evidence] == [True] * 4
    assert run.values is not None
    assert run.values.verdict, run.values
    assert run.config.own_rows == OwnRows(targets=1, validation=True)
    assert (run.tokens, run.val_targets, run.val_split_targets) == (6 * 8, 8 * 16, 8 * 16)
    assert run.val_loss is not None
    assert run.val_standard_error == 0
    assert run.predicted is not None
    assert run.predicted.tensors_peak_bytes == pytest.approx(run.memory.tensors_peak_bytes, rel=0.05)


@pytest.mark.usefixtures("forked")
def test_nothing_is_said_of_text(folder: Path) -> None:
    run = trained("waves", folder)
    figures = (run.val_perplexity, run.val_bits_per_byte, run.epoch_seconds, run.sample)
    assert figures == (None, None, None, None)
    assert {"val_perplexity", "val_bits_per_byte", "epoch_seconds", "sample"} <= set(run.missing)
    told = plain_text(run.report())
    assert "96 targets" in told
    assert "on all 128 held-out targets" in told
    assert not re.search(r"tokens|perplexity \d|bits per byte \d|uniform guess|assay sample|context", told)


@pytest.mark.usefixtures("forked")
def test_a_technique_that_reads_weights_of_assays_own_model_refuses_the_run(folder: Path) -> None:
    run = trained("blind", folder)
    with pytest.raises(
        UsageError, match=r"trained waves\.py:blind, and this reads checkpoints of assay's own model only"
    ):
        assay.gradients(run.run, home=folder / "home")


@pytest.mark.usefixtures("forked")
def test_held_out_batches_that_fail_leave_the_steps_saved(folder: Path) -> None:
    run = trained("failing", folder)
    assert run.status.value == "failed"
    assert run.reason == "validation(16) of waves.py:failing failed: OSError: the disk is gone"
    saved = checkpoint.complete(RunFolder(folder / "home" / "runs" / run.run).checkpoints)
    assert [one.name for one in saved] == ["step-00000006"]


@pytest.mark.usefixtures("forked")
def test_without_validation_there_is_no_evaluation(folder: Path) -> None:
    run = trained("blind", folder, "training.eval_interval=2")
    assert run.status.value == "done", run.reason
    assert (run.val_loss, run.val_targets) == (None, None)
    assert "no validation batches" in run.missing["val_loss"]
    assert re.search(r"result +training loss", plain_text(run.report()))
    with pytest.raises(UsageError, match="has no validation batches"):
        trained("blind", folder, "training.target_loss=0.1")


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("name", [pytest.param("waves", marks=pytest.mark.slow), "normed"])
def test_a_resumed_run_continues_bit_for_bit(folder: Path, name: str) -> None:
    whole = trained(name, folder, "training.eval_interval=2", optimizations="fused_adamw")
    assert whole.status.value == "done", whole.reason
    half = trained(name, folder, "training.eval_interval=2", "training.tokens=48", optimizations="fused_adamw")
    assert (half.status.value, half.steps) == ("budget_reached", 3)
    assert half.reason == "the budget of 48 targets is reached after 3 steps"
    rest = assay.train("training.tokens=1000", resume=half.run, home=folder / "home")
    assert rest.status.value == "done", rest.reason
    assert (rest.train_loss, rest.val_loss) == (whole.train_loss, whole.val_loss)
    digests = [
        checkpoint.read_state(checkpoint.complete(RunFolder(folder / "home" / "runs" / run).checkpoints)[0])["sha256"]
        for run in (whole.run, rest.run)
    ]
    assert digests[0] == digests[1]


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("technique", "says"),
    [("streaming:path=text.txt", "streaming changes parts"), ("data_parallel", "data_parallel changes parts")],
)
def test_techniques_of_tokens_and_ranks_are_refused(folder: Path, technique: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        trained("waves", folder, "ranks=2" if technique == "data_parallel" else "ranks=1", optimizations=technique)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("name", [pytest.param("waves", marks=pytest.mark.slow), "blind"])
def test_a_comparison_has_targets_and_the_loss_that_there_is(folder: Path, name: str) -> None:
    own = (f"waves.py:{name}", *SHORT, f"data.path={folder / 'text.txt'}")
    rows = ["fused_adamw", "smaller_batch"]
    found = assay.compare(*own, treatments=rows, seeds=1, processes=1, blocks=1, home=folder / "home")
    assert {row.treatment: row.status.value for row in found.rows} == dict.fromkeys(rows, "done")
    told = plain_text(found.report())
    loss = "validation loss" if name == "waves" else "training loss"
    assert re.search(rf"targets/s\s+{loss}\n", told)
    assert "tokens/s" not in told
    assert "nats" not in told
    page = render(found)
    assert "targets/s" in page
    assert loss in page
    assert "nats" not in page
