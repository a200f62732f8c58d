"""Honest models of a user's own that are no GPT: unused and scalar parameters, buffers that change, other state."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay import api
from assay.config import Home
from assay.errors import UsageError
from assay.records.evidence import ValueProof
from assay.records.status import Status
from assay.step.program import Step
from assay.training.loop import read, take_step
from assay.training.stops import WrongValues
from assay.values.check import Checker
from assay.values.recorded import Recorded
from assay.values.watch import UpdateWatch
from support.random_data import RandomData
from support.steps import build_step
from values.recording import own_run, proof_of_values, record_steps

MODEL = """
import assay
import torch
from torch import nn
from torch.nn.functional import gelu


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.middle, self.down = nn.Linear(4, 16), nn.Linear(16, 16), nn.Linear(16, 2)
        self.unused, self.scale = nn.Linear(4, 4), nn.Parameter(torch.tensor(1.5))
        self.register_buffer("mean", torch.zeros(16))
        self.calls = 0

    def forward(self, x):
        return FORWARD


def island(model, x):
    with torch.autocast(x.device.type, enabled=False):
        return model.down(x.to(model.down.weight.dtype))


def centred(model, x):
    with torch.no_grad():
        model.mean.mul_(0.9).add_(x.flatten(0, -2).mean(0).to(model.mean.dtype), alpha=0.1)
    return x - model.mean.to(x.dtype)


def counted(model, x):
    model.calls += 1
    return x * (1 + 0.01 * model.calls)


def skipped(model, x):
    return x + gelu(model.middle(x)) if torch.rand(()) < 0.5 else x


def batches(step, seed, rows):
    x = torch.randn(rows, 4)
    return x, x[:, :2].sin()


def build():
    return assay.OwnModel(Model(), lambda model, x, y: (model(x) - y).square().mean(), batches)
"""


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """A later test may import another module of this name."""
    yield
    sys.modules.pop("mine", None)


PLAIN = "self.scale * self.down(gelu(self.middle(gelu(self.up(x)))))"
CENTRED = "self.scale * self.down(gelu(self.middle(centred(self, self.up(x)))))"
COUNTED = "self.scale * self.down(gelu(self.middle(counted(self, self.up(x)))))"
SKIPPED = "self.scale * self.down(skipped(self, gelu(self.up(x))))"
ISLAND = "self.scale * island(self, gelu(self.middle(gelu(self.up(x)))))"


def proof(tmp_path: Path, technique: str, forward: str) -> ValueProof:
    return proof_of_values(own_run(tmp_path, technique, text=MODEL.replace("FORWARD", forward)), tmp_path / "values")


@pytest.mark.parametrize("forward", [PLAIN, CENTRED], ids=["plain", "centred"])
@pytest.mark.parametrize("technique", ["fused_adamw", "bf16_mixed", "adafactor", "lion", "sgd"])
def test_values_are_right_with_unused_and_scalar_parameters_and_changed_buffers(
    tmp_path: Path, technique: str, forward: str
) -> None:
    found = proof(tmp_path, technique, forward)
    assert found.verdict, (found.failures, found.unchecked)
    assert found.updates == 3


def test_a_model_that_keeps_state_elsewhere_is_not_proven(tmp_path: Path) -> None:
    run = own_run(tmp_path, "fused_adamw", text=MODEL.replace("FORWARD", COUNTED))
    data = RandomData(run)
    step = build_step(run, data)
    record_steps(step, run, tmp_path / "beginning")
    record_steps(step, run, tmp_path / "middle", steps=1, first=3, part="middle")
    found = Checker(run, data, step.program.device).check(Recorded(tmp_path / "middle"))  # type: ignore[arg-type]
    assert not found.failures
    assert "computes another loss when it is called again" in found.unchecked


def test_a_weight_that_moves_without_a_gradient_is_wrong(tmp_path: Path) -> None:
    def moving(step: Step) -> None:
        (unused,) = (one for name, one in step.named_parameters() if name.endswith("unused.weight"))

        def move(*_: object) -> None:
            unused.data.add_(1e-3)

        step.parts[0].register_forward_hook(move)

    run = own_run(tmp_path, "fused_adamw", text=MODEL.replace("FORWARD", PLAIN))
    found = proof_of_values(run, tmp_path / "values", moving)
    assert not found.verdict
    assert any("unused.weight" in one for one in found.failures), found.failures


def _watched(tmp_path: Path, steps: int, *, idle: bool = False) -> int:
    """Number of updates that the watch found right, of a model that skips a block by chance."""
    run = own_run(tmp_path, "fused_adamw", text=MODEL.replace("FORWARD", SKIPPED))
    step = build_step(run, RandomData(run))
    watch = UpdateWatch(run, step)
    if idle:
        step.optimizer.step = lambda *_: None  # type: ignore[method-assign]
    for index in range(steps):
        for record in read(step, [watch.taking(take_step)(step, index, None)]):  # type: ignore[list-item]
            watch.stepped(record)
    return watch.updates


def test_a_block_that_is_skipped_by_chance_needs_no_update(tmp_path: Path) -> None:
    assert _watched(tmp_path, 20) == 20


def test_a_step_without_any_update_is_found(tmp_path: Path) -> None:
    with pytest.raises(WrongValues, match="made no update of"):
        _watched(tmp_path, 5, idle=True)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("technique", "forward", "observed"),
    [
        ("fused_adamw", PLAIN, "2 fused kernels updated 7 of 7 parameters"),
        ("bf16_mixed", ISLAND, "5 of 8 matmuls in bfloat16; model.py:build keeps the others in 32 bits itself"),
    ],
)
def test_a_run_is_proven(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, technique: str, forward: str, observed: str
) -> None:
    (tmp_path / "model.py").write_text(MODEL.replace("FORWARD", forward))
    monkeypatch.chdir(tmp_path)
    words = ("training.steps=20", "training.batch_size=8", "training.warmup_steps=2")
    found = api.train("model.py:build", *words, optimizations=technique, home=home)
    assert (found.status, found.reason) == (Status.DONE, None)
    assert found.evidence[0].observed.startswith(observed)


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        ("self.up, self.turn = nn.Linear(4, 16), nn.Parameter(torch.zeros(2, dtype=torch.complex64))", "turn of"),
        ("self.up, self.words = nn.Linear(4, 16), nn.Embedding(4, 2, sparse=True)", "words of"),
    ],
)
def test_gradients_that_a_run_cannot_follow_are_refused_before_it(tmp_path: Path, layer: str, says: str) -> None:
    text = MODEL.replace("FORWARD", PLAIN).replace("super().__init__()\n", f"super().__init__()\n        {layer}\n")
    with pytest.raises(UsageError, match=f"{says} .*build (is complex|has sparse gradients)"):
        build_step(own_run(tmp_path, "fused_adamw", text=text))


@pytest.mark.parametrize("source", [lambda: None, 5, object()])
def test_a_model_that_is_given_as_an_object_is_refused_in_a_sentence(source: object) -> None:
    with pytest.raises(UsageError, match="name a model of your own as"):
        api.train(source)  # type: ignore[arg-type]
