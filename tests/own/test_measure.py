"""A training step of a user's own under the instruments, against what is known of it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import assay
from assay.errors import UsageError
from assay.own.measure import loss_of, targets_of
from support.schemas import faults

WIDTH, ROWS, CLASSES = 16, 32, 10


class Counted:
    """A step of two linear layers that counts its calls."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, CLASSES))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.x, self.y = torch.randn(ROWS, WIDTH), torch.randint(CLASSES, (ROWS,))
        self.calls = 0

    def __call__(self) -> torch.Tensor:
        self.calls += 1
        loss = nn.functional.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


@pytest.fixture(scope="module")
def measured() -> "tuple[Counted, assay.api.result_types.MeasuredOwnStep]":
    step = Counted()
    return step, assay.measure(step, title="two layers", tokens=ROWS, blocks=2)


def test_its_model_and_optimizer_are_found(measured: tuple) -> None:
    step, found = measured
    assert found.program.modules == ("Sequential",)
    assert found.program.optimizers == ("AdamW",)
    assert found.program.parameters == sum(one.numel() for one in step.model.parameters())
    assert found.steps == step.calls


def test_its_operators_are_counted(measured: tuple) -> None:
    _, found = measured
    products = 2 * ROWS * (WIDTH * 4 * WIDTH + 4 * WIDTH * CLASSES)
    first = 2 * ROWS * WIDTH * 4 * WIDTH  # its input needs no gradient
    assert found.flops == {"float32": 3 * products - first}
    assert found.forwards == 1
    assert {one.phase for one in found.operations} == {"forward", "backward", "update"}
    assert not found.synchronizations, "the record reads the loss, but the step does not"
    assert found.held.parameter_bytes == found.held.gradient_bytes == 4 * found.program.parameters
    assert found.held.optimizer_state_bytes == 8 * found.program.parameters + 4 * 4


def test_its_peak_has_parts(measured: tuple) -> None:
    _, found = measured
    assert found.memory.tensors_peak_bytes > 12 * found.program.parameters
    assert 0 <= 1 - sum(found.peak_parts.values()) / found.memory.tensors_peak_bytes < 0.01
    assert found.peak_parts["weights"] == 4 * found.program.parameters
    assert found.memory.tensors_peak_instant.startswith(("forward: ", "backward: ", "update: "))


class Keeping(Counted):
    """A step that keeps a large tensor until the next call, and frees it first."""

    def __call__(self) -> torch.Tensor:
        self.kept = None
        loss = super().__call__()
        self.kept = torch.ones(2**18)
        return loss


def test_a_tensor_that_is_kept_for_the_next_step_counts_once() -> None:
    peaks = {assay.measure(Keeping(), blocks=1).own_peak_bytes for _ in range(5)}
    assert len(peaks) == 1
    assert 0 <= peaks.pop() - 2**20 < 2**17


def test_it_says_what_was_not_measured(measured: tuple) -> None:
    _, found = measured
    assert found.memory.process_peak_bytes is None
    assert found.memory.heap_peak_bytes is None
    assert {"process_peak_bytes", "heap_peak_bytes"} <= set(found.missing)


def test_it_is_shown(measured: tuple) -> None:
    _, found = measured
    printed = str(found)
    assert "two layers" in printed
    assert "peak of tensors" in printed
    assert "not measured" in printed
    assert "<table>" in found._repr_html_()
    assert len(found.to_frame()) == len(found.operations)
    assert found.plot() is not None
    value = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert value["flops"] == found.flops
    assert faults("measure", value) == []
    assert faults("measure", {**value, "tokens_per_second": "many"}) != []


def test_the_steps_train_as_they_would_alone() -> None:
    """Watched, timed or traced: the weights are bit-equal to those of as many plain steps."""
    watched, plain = Counted(), Counted()
    steps = assay.measure(watched, watched.model, watched.optimizer, blocks=1).steps
    for _ in range(steps):
        plain()
    for one, other in zip(watched.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.usefixtures("forked")
def test_a_name_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    code = """
import torch
def build():
    print("a word of the user's")
    model, x = torch.nn.Linear(8, 8), torch.ones(4, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def step():
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return step
"""
    (tmp_path / "mine.py").write_text(code)
    found = assay.measure("mine:build", folder=tmp_path, blocks=1)
    assert found.memory.process_peak_bytes > 10**7
    assert found.memory.heap_peak_bytes > 0
    assert found.last_loss is None
    assert "last_loss" in found.missing
    assert not found.held.optimizer_state_bytes


def by_hand(way: str) -> Callable[[], torch.Tensor]:
    """A step that updates its weights without an optimizer of torch."""
    torch.manual_seed(0)
    model, x = nn.Linear(WIDTH, CLASSES, bias=False), torch.randn(ROWS, WIDTH)

    def step() -> torch.Tensor:
        loss = model(x).square().mean()
        (gradient,) = torch.autograd.grad(loss, model.weight) if way == "functional" else (None,)
        if gradient is None:
            loss.backward()
            gradient, model.weight.grad = model.weight.grad, None
        if way == "data":
            model.weight.data -= 0.1 * gradient
        else:
            with torch.no_grad():
                model.weight -= 0.1 * gradient
        return loss

    return step


@pytest.mark.parametrize("way", ["in place", "data", "functional"])
def test_a_step_that_updates_by_hand_is_measured(way: str) -> None:
    found = assay.measure(by_hand(way), blocks=1)
    assert (found.program.modules, found.program.optimizers) == (("Linear",), ("hand",))
    assert found.last_loss < found.first_loss
    assert found.flops == {"float32": 2 * 2 * ROWS * WIDTH * CLASSES}
    assert found.held.gradient_bytes == (0 if way == "functional" else 4 * WIDTH * CLASSES)
    assert not found.held.optimizer_state_bytes


def _nothing() -> None:
    pass


def _forward_only() -> None:
    nn.Linear(2, 2)(torch.ones(1, 2))


@pytest.mark.parametrize("step", [_nothing, _forward_only])
def test_a_step_without_an_update_is_refused(step: Callable[[], None]) -> None:
    with pytest.raises(UsageError, match="no optimizer of torch made a step in 4 calls"):
        assay.measure(step)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"step": 3}, "a step is a function or the text module:function, and not 3"),
        ({"step": "nowhere"}, "names no function"),
        ({"step": "nowhere:build"}, "nowhere cannot be imported: ModuleNotFoundError"),
        ({"step": _nothing, "blocks": 0}, "blocks and tokens must be positive"),
        ({"step": "a:b", "model": nn.Linear(1, 1)}, "brings its own model"),
    ],
)
def test_bad_input_gets_a_sentence(options: dict, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        assay.measure(**options)


def test_a_step_may_return_a_sum_and_its_count() -> None:
    class Summed(Counted):
        def __call__(self) -> tuple[torch.Tensor, int]:  # type: ignore[override]
            self.counts = [*getattr(self, "counts", []), ROWS - self.calls % 3]
            return super().__call__() * self.counts[-1], self.counts[-1]

    step = Summed()
    found = assay.measure(step, blocks=2)
    assert found.first_loss == pytest.approx(Counted()().item())
    timed = sum(block.steps for block in found.blocks)
    before = 1 + 2  # the first step, and two that warm up
    assert sum(block.tokens for block in found.blocks) == sum(step.counts[before : before + timed])
    assert found.program.tokens == round(sum(step.counts[before : before + timed]) / timed)
    assert assay.measure(Summed(), blocks=1, tokens=7).program.tokens == 7


@pytest.mark.parametrize(
    ("returned", "loss", "targets"),
    [
        ((torch.tensor(6.0), torch.tensor(4)), 1.5, 4),
        ((6.0, 4.0), 1.5, 4),
        ((torch.tensor(6.0), 0.83), None, None),
        ((torch.tensor(6.0), 0), None, None),
        ((torch.tensor(6.0), True), None, None),
        ((torch.zeros(2), 2), None, None),
        (torch.tensor(6.0), 6.0, None),
    ],
)
def test_a_pair_is_a_sum_only_with_a_whole_count(returned: object, loss: float | None, targets: int | None) -> None:
    assert (loss_of(returned), targets_of(returned)) == (loss, targets)
