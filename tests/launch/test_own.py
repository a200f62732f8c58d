"""The look at a model of the user's own before its run: its batches and its traced peak.

A peak that cannot be traced stops no run, and a fault of the model or its batches does.
"""

import sys
from pathlib import Path
from typing import Any

import pytest

from assay.config import DataConfig, Home, ResolvedRun, validate
from assay.config.run import OwnRows
from assay.errors import UsageError
from assay.hardware import Machine
from assay.hardware.detect import detect
from assay.launch import own
from assay.launch.own import inspect_own_model, trace_own_step
from assay.launch.prepare import predict, ready
from assay.optimizations import resolve_run

MODELS = """
import sys
import assay
import torch
from torch import nn
from torch.nn import functional


class Words(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocabulary, 8), nn.Linear(8, vocabulary)

    def forward(self, ids, targets):
        return functional.cross_entropy(self.head(self.embed(ids)).flatten(0, 1), targets.flatten())


class Silent(Words):
    def forward(self, ids, targets):
        return self.head(self.embed(ids))


def silent(config):
    return Silent(config.vocab_size)


def detached(config):
    return assay.OwnModel(Words(config.vocab_size), lambda model, ids, targets: model(ids, targets).detach())


def listed(config):
    return assay.OwnModel(Words(config.vocab_size), lambda model, ids, targets: [1.0, 2.0, 3.0])


class Frequent(Words):
    def forward(self, ids, targets):
        flat, wanted = ids.flatten(), targets.flatten()
        chosen = (flat < 3).nonzero()[:, 0]
        return functional.cross_entropy(self.head(self.embed(flat[chosen])), wanted[chosen])


def words(config):
    return Words(config.vocab_size)


def frequent(config):
    return Frequent(config.vocab_size)


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.line, self.data = nn.Linear(3, 2), torch.arange(30.0).reshape(10, 3)

    def rows(self, step, seed, rows):
        chosen = self.data[torch.randint(10, (rows,))]
        return chosen, torch.tensor([[one, one + 1] for one in chosen[:, 0].tolist()])


def square(model, x, y):
    return (model.line(x) - y).square().mean()


def table():
    model = Table()
    return assay.OwnModel(model, square, model.rows, lambda rows: [model.rows(0, 0, rows)] * 3)


def positive(model, x, y):
    chosen = (x[:, 0] > 3).nonzero()[:, 0]
    return (model.line(x[chosen]) - y[chosen]).square().mean()


def shapeless():
    model = Table()
    return assay.OwnModel(model, positive, model.rows)


def drifting():
    count = []

    def batches(step, seed, rows):
        count.append(step)
        return torch.full((rows, 3), float(len(count))), torch.zeros(rows, 2)

    return assay.OwnModel(Table(), square, batches)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return x + self.down(self.up(x).relu())


class Deep(Words):
    def __init__(self, vocabulary, first, second):
        super().__init__(vocabulary)
        self.first, self.second = first, second

    def forward(self, ids, targets):
        x = self.second(self.first(self.embed(ids)))
        return functional.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


def unlike(config):
    return Deep(config.vocab_size, Layer(), nn.Identity())


def told(config):
    model = Deep(config.vocab_size, Layer(), Layer())
    return assay.OwnModel(model, blocks=[model.first, model.second])


def foreign(config):
    return assay.OwnModel(Words(config.vocab_size), blocks=[Layer()])


def frozen(config):
    model = Words(config.vocab_size)
    model.embed.weight.requires_grad_(False)
    return model


def endless(config):
    model = Words(config.vocab_size)
    model.embed.weight.data[0, 0] = float("-inf")
    return model


def bare(config):
    with torch.device("meta"):
        return Words(config.vocab_size)


def alone():
    return assay.OwnModel(Table(), square, validation=lambda rows: [])


def broken():
    raise ValueError("no weights here")


def leaving():
    sys.exit(0)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models.py").write_text(MODELS)
    return tmp_path


def run_of(folder: Path, name: str, **fields: object) -> ResolvedRun:
    model = {"own": f"models.py:{name}", "own_folder": str(folder), "vocab_size": 64, "context_length": 16}
    values = {"model": model, "training": {"batch_size": 2, "steps": 2}, **fields}
    return resolve_run(validate(values)).with_vocabulary(64)


@pytest.mark.usefixtures("forked")
def test_the_peak_of_a_traced_step_is_the_prediction(folder: Path) -> None:
    found = predict(run_of(folder, "words"), detect())
    assert found is not None
    assert found.traced
    assert found.refused is None
    assert found.tensors_peak_bytes is not None
    # Weights, two moments and gradients of 64·8 + 8·64 + 64 elements, and the logits of 32 tokens.
    assert found.tensors_peak_bytes >= 4 * (3 * 1088 + 32 * 64)
    assert found.step_seconds is None


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("frequent", "the shape of aten.nonzero.default's result depends on values"),
        ("shapeless", "the shape of aten.nonzero.default's result depends on values"),
    ],
)
def test_a_trace_that_fails_is_a_reason(folder: Path, name: str, says: str) -> None:
    _, found = inspect_own_model(run_of(folder, name), detect())
    assert says in (found.refused or "")
    assert (found.traced, found.tensors_peak_bytes) == (False, None)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("broken", "models.py:broken failed: ValueError: no weights here"),
        ("leaving", "the program ended its process before it answered"),
        ("missing", "has no function 'missing'"),
        ("drifting", "batches of models.py:drifting returned two different batches for step 0"),
        ("alone", "has validation and no batches"),
        ("frozen", "embed.weight of models.py:frozen needs no gradient.* assay measure takes a training step"),
        ("endless", "embed.weight of models.py:endless is NaN or infinite, so the run would diverge"),
        ("bare", "embed.weight of models.py:bare is on the meta device and has no value to start from"),
        ("silent", "models.py:silent cannot be trained: model.* returned no loss; return assay.OwnModel"),
        ("detached", "models.py:detached cannot be trained: the model.s loss has no gradient; compute it"),
        ("listed", "models.py:listed cannot be trained: the loss of your assay.OwnModel is a list"),
        ("foreign", "blocks of models.py:foreign has a Layer that is no module of its model"),
    ],
)
def test_a_faulty_model_is_refused_before_its_run(folder: Path, name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        inspect_own_model(run_of(folder, name), detect())


@pytest.mark.usefixtures("forked")
def test_a_technique_that_finds_no_blocks_is_refused_before_the_run_and_what_it_says_works(folder: Path) -> None:
    checkpointed = {"optimizations": ["activation_checkpointing"]}
    with pytest.raises(UsageError, match=r"has 0 blocks .*; name them in assay\.OwnModel\(model, blocks=\[…\]\)"):
        inspect_own_model(run_of(folder, "unlike", **checkpointed), detect())
    _, plain = inspect_own_model(run_of(folder, "told"), detect())
    _, found = inspect_own_model(run_of(folder, "told", **checkpointed), detect())
    assert found.traced
    assert (found.tensors_peak_bytes or 0) < (plain.tensors_peak_bytes or 0)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("fields", [{"device": "cuda"}, {"ranks": 2}])
def test_blocks_that_are_not_found_are_refused_before_a_run_that_no_trace_follows(
    folder: Path, fields: dict[str, Any]
) -> None:
    # Only a technique of a user's own may divide a model of theirs, so the ranks are written in.
    unlike, told = (
        run_of(folder, name, optimizations=["activation_checkpointing"]).model_copy(update=fields)
        for name in ("unlike", "told")
    )
    with pytest.raises(UsageError, match=r"has 0 blocks .*; name them in assay\.OwnModel\(model, blocks=\[…\]\)"):
        inspect_own_model(unlike, detect())
    inspect_own_model(told, detect())


@pytest.mark.usefixtures("forked")
def test_a_model_on_the_meta_device_is_predicted(folder: Path) -> None:
    built = trace_own_step(run_of(folder, "words"))
    assert trace_own_step(run_of(folder, "bare")) == built


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("fields", [{}, {"optimizations": ["smaller_batch", "gradient_accumulation:micro_batches=2"]}])
def test_batches_of_ones_own_are_looked_at_and_traced(folder: Path, fields: dict[str, Any]) -> None:
    rows, found = inspect_own_model(run_of(folder, "table", training={"batch_size": 4, "steps": 2}, **fields), detect())
    assert rows == OwnRows(targets=2, validation=True)
    assert found.traced, found.refused
    # Weights, two moments and gradients of 3·2 + 2 elements.
    assert (found.tensors_peak_bytes or 0) >= 4 * 4 * 8


@pytest.mark.usefixtures("forked")
def test_batches_are_known_although_the_step_cannot_be_traced(folder: Path) -> None:
    rows, found = inspect_own_model(run_of(folder, "shapeless"), detect())
    assert rows == OwnRows(targets=2, validation=False)
    assert not found.traced


@pytest.mark.usefixtures("forked")
def test_a_target_loss_needs_validation_batches(folder: Path, tmp_path: Path) -> None:
    run = run_of(folder, "shapeless", training={"batch_size": 2, "steps": 2, "target_loss": 1.0})
    (tmp_path / "text.txt").write_text("Some words, again and again. " * 200)
    model = run.model.model_copy(update={"vocab_size": None})
    asked = run.asked().model_copy(update={"data": DataConfig(path=str(tmp_path / "text.txt")), "model": model})
    with pytest.raises(UsageError, match="has no validation batches"):
        ready(asked, Home(tmp_path / "home"))


def test_a_trace_that_hangs_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "_CHILD", (sys.executable, "-c", "import time; time.sleep(600)"))
    monkeypatch.setattr(own, "_TRACE_SECONDS", 0.2)
    rows, found = inspect_own_model(run_of(folder, "words"), detect())
    assert (rows, found.refused) == (None, "the program gave no answer within 0.2 seconds")


def test_an_accelerators_step_is_not_traced_on_a_cpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "import json, sys; print('null') if not json.loads(sys.stdin.readline())['trace'] else sys.exit(7)"
    monkeypatch.setattr(own, "_CHILD", (sys.executable, "-c", said))
    monkeypatch.setattr(Machine, "device", lambda machine, asked: "cuda")
    rows, found = inspect_own_model(run_of(folder, "words"), detect())
    assert rows is None
    assert found.refused == "a trace follows the kernels of a CPU, and this run uses others"
