"""Steps that are hard to compare: batch norms, batches in dictionaries, optimizers with closures, several updates."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import assay
from assay.cli.main import app
from assay.errors import UsageError
from assay.own.against import compare_steps

Step = Callable[[], Any]


class Normed(nn.Module):
    """A layer, a batch norm, and a constant in float64; its input lies in a dictionary."""

    def __init__(self, momentum: float = 0.1) -> None:
        super().__init__()
        self.layer, self.norm, self.head = nn.Linear(8, 16), nn.BatchNorm1d(16, momentum=momentum), nn.Linear(16, 1)
        self.register_buffer("phase", torch.linspace(0, 1, 16, dtype=torch.float64))

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        found: Tensor = self.head(self.norm(self.layer(batch["x"])) + self.phase.cos().to(batch["x"].dtype))
        return found


def normed(momentum: float = 0.1, mixed: bool = False, **options: Any) -> Step:
    torch.manual_seed(0)
    model = Normed(momentum)
    update, batch = torch.optim.AdamW(model.parameters(), lr=1e-2, **options), {"x": torch.randn(32, 8)}

    def step() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            found = model(batch).float().squeeze(-1)
        loss = nn.functional.binary_cross_entropy_with_logits(found, (batch["x"][:, 0] > 0).float())
        loss.backward()
        update.step()
        update.zero_grad()
        return loss.detach()

    step.model = model  # type: ignore[attr-defined]
    return step


def small(train: Callable[[nn.Linear, Tensor], Any], value: float = 0.0) -> Step:
    """A step of one layer whose first weight has a value."""
    torch.manual_seed(0)
    layer, batch = nn.Linear(4, 1), torch.randn(8, 4)
    with torch.no_grad():
        layer.weight[0, 0] = value
    return lambda: train(layer, batch)


def with_closure() -> Step:
    optimizers: list[torch.optim.LBFGS] = []

    def train(layer: nn.Linear, batch: Tensor) -> float:
        optimizers[:] = optimizers or [torch.optim.LBFGS(layer.parameters())]

        def loss() -> float:
            optimizers[0].zero_grad()
            found = layer(batch).square().mean()
            found.backward()
            return float(found)

        return float(optimizers[0].step(loss))

    return small(train)


def sgd(layer: nn.Linear, batch: Tensor, updates: int = 1) -> float:
    update = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(updates):
        update.zero_grad()
        loss = layer(batch).square().mean()
        loss.backward()
        update.step()
    return float(loss.detach())


def accumulated(every: int) -> Step:
    torch.manual_seed(0)
    layer, batch, calls = nn.Linear(4, 1), torch.randn(8, 4), [0]
    update = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step() -> Tensor:
        loss = layer(batch).square().mean() / every
        loss.backward()
        calls[0] += 1
        if calls[0] % every == 0:
            update.step()
            update.zero_grad()
        return loss.detach()

    return step


@pytest.mark.parametrize("kind", ["exact", "reassociated"])
def test_an_honest_step_with_a_batch_norm_is_right(kind: Any) -> None:
    found = compare_steps(normed(foreach=True), normed(foreach=False), kind)
    assert found.verdict, (found.failures, found.unchecked)


def test_an_honest_lossy_step_with_a_batch_norm_is_right() -> None:
    found = compare_steps(normed(mixed=True), normed(), "lossy")
    assert found.verdict, (found.failures, found.unchecked)


@pytest.mark.parametrize("kind", ["exact", "reassociated"])
def test_other_statistics_of_a_batch_norm_are_wrong(kind: Any) -> None:
    found = compare_steps(normed(0.9), normed(), kind)
    assert not found.verdict
    assert any(one.startswith("the buffer of norm.running_") for one in found.failures), found.failures


def test_a_buffer_in_float64_stays_so() -> None:
    baseline = normed()
    assert compare_steps(normed(), baseline, "reassociated").checked
    dtypes = {name: one.dtype for name, one in baseline.model.named_buffers()}  # type: ignore[attr-defined]
    assert dtypes["phase"] is torch.float64
    assert dtypes["norm.running_mean"] is torch.float32


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (with_closure, "call 1 of a step has no gradients before LBFGS steps"),
        (lambda: small(lambda *given: sgd(*given, updates=2)), "call 1 of a step updates weight twice"),
        (lambda: small(sgd, float("nan")), "weight has values that are NaN or infinite"),
    ],
)
def test_a_step_that_cannot_be_compared_is_not_proven_and_says_why(make: Callable[[], Step], says: str) -> None:
    found = compare_steps(make(), make(), "reassociated")
    assert found.unchecked.startswith(says)


@pytest.mark.usefixtures("forked")
def test_nothing_wrong_and_nothing_proven_is_a_verdict_with_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "both.py").write_text(
        "import torch\n\n\ndef plain(updates=2):\n    torch.manual_seed(0)\n    layer = torch.nn.Linear(4, 1)\n"
        "    optimizer, batch = torch.optim.SGD(layer.parameters(), lr=0.1), torch.randn(8, 4)\n\n"
        "    def step():\n        for _ in range(updates):\n            loss = layer(batch).square().mean()\n"
        "            loss.backward()\n            optimizer.step()\n            optimizer.zero_grad()\n"
        "        return loss\n\n    return step\n\n\ndef thrice():\n    return plain(3)\n"
    )
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(app, ["measure", "both.py:thrice", "--against", "both.py:plain", "--blocks", "1"])
    assert said.exit_code == 5
    assert "not proven" in said.output
    assert "WRONG" not in said.output


def test_calls_without_an_update_are_refused() -> None:
    with pytest.raises(UsageError, match="made no update, and an earlier one did; give a function that does one whole"):
        assay.measure(accumulated(2), blocks=1)


def test_marks_for_the_profiler_are_no_operators() -> None:
    def train(layer: nn.Linear, batch: Tensor, parts: int) -> float:
        loss = layer(batch).square().mean()
        loss.backward()
        for some in ([layer.weight, layer.bias],) if parts == 1 else ([layer.weight], [layer.bias]):
            torch.optim.SGD(some, lr=0.1).step()
        layer.zero_grad()
        return float(loss.detach())

    one, two = (small(lambda *given, parts=parts: train(*given, parts)) for parts in (1, 2))
    found = assay.measure(two, against=one, blocks=1).proof
    assert found is not None
    assert [each.name for each in found.operators if each.name.startswith("profiler.")] == []


def test_a_compiled_function_has_figures_that_are_listed_as_not_measured() -> None:
    compiled = torch.compile(lambda layer, batch: layer(batch).square().mean(), backend="aot_eager")
    update: list[torch.optim.Optimizer] = []

    def train(layer: nn.Linear, batch: Tensor) -> Tensor:
        update[:] = update or [torch.optim.SGD(layer.parameters(), lr=0.1)]
        loss: Tensor = compiled(layer, batch)
        loss.backward()
        update[0].step()
        update[0].zero_grad()
        return loss.detach()

    found = assay.measure(small(train), blocks=1)
    assert found.anatomy is None
    assert "operators inside compiled code" in found.missing


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"tokens": "a"}, "blocks and tokens must be positive"),
        ({"model": "x"}, "model is one Module of torch or several, and not 'x'"),
        ({"optimizer": 3}, "optimizer is one Optimizer of torch or several, and not 3"),
        ({"numerics": "exact"}, "give the baseline as against="),
    ],
)
def test_arguments_of_another_type_are_refused_in_a_sentence(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        assay.measure(normed(), **arguments)
