"""The traced prediction of a model of the user's own: it is made where it can be, and stops no run where it cannot."""

import sys
from pathlib import Path

import pytest

from assay.config import ResolvedRun, validate
from assay.hardware import Machine
from assay.hardware.detect import detect
from assay.launch import own
from assay.launch.own import predicted
from assay.launch.prepare import predict
from assay.optimizations import resolved

MODELS = """
import sys
import torch
from torch import nn
from torch.nn import functional


class Words(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.embed, self.head = nn.Embedding(vocabulary, 8), nn.Linear(8, vocabulary)

    def forward(self, ids, targets):
        return functional.cross_entropy(self.head(self.embed(ids)).flatten(0, 1), targets.flatten())


class Frequent(Words):
    def forward(self, ids, targets):
        flat, wanted = ids.flatten(), targets.flatten()
        chosen = (flat < 3).nonzero()[:, 0]
        return functional.cross_entropy(self.head(self.embed(flat[chosen])), wanted[chosen])


def words(config):
    return Words(config.vocab_size)


def frequent(config):
    return Frequent(config.vocab_size)


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
    return resolved(validate(values)).with_vocabulary(64)


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
        ("broken", "models.py:broken failed: ValueError: no weights here"),
        ("leaving", "the program ended its process before it answered"),
        ("missing", "has no function 'missing'"),
    ],
)
def test_a_trace_that_fails_is_a_reason(folder: Path, name: str, says: str) -> None:
    found = predicted(run_of(folder, name), detect())
    assert says in (found.refused or "")
    assert (found.traced, found.tensors_peak_bytes) == (False, None)


def test_a_trace_that_hangs_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "_CHILD", (sys.executable, "-c", "import time; time.sleep(600)"))
    monkeypatch.setattr(own, "_TRACE_SECONDS", 0.2)
    assert predicted(run_of(folder, "words"), detect()).refused == "the program gave no answer within 0.2 seconds"


def test_an_accelerators_step_is_not_traced_on_a_cpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "_CHILD", (sys.executable, "-c", "raise SystemExit(7)"))
    monkeypatch.setattr(Machine, "device", lambda machine, asked: "cuda")
    found = predicted(run_of(folder, "words"), detect())
    assert found.refused == "a trace follows the kernels of a CPU, and this run uses others"
