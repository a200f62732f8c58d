"""Figures of a step that a gate locks: equal to those of the measured step, and with the lines that make them."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from assay.errors import UsageError
from assay.fake.gated_step import breaks_on_cpu, eager_code, gated_step
from assay.own.measure import measure_step
from assay.records.gated import StepFigures
from assay.records.own import OTHERS

HERE = Path(__file__).parent
Make = Callable[[], Callable[[], Any]]


class Layer(nn.Module):
    def __init__(self, parts: bool) -> None:
        super().__init__()
        self.up, self.down, self.parts = nn.Linear(32, 64), nn.Linear(64, 32), parts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.up(x)
        return self.down(x * torch.sigmoid(1.702 * x) if self.parts else functional.gelu(x))


class Model(nn.Module):
    def __init__(self, parts: bool = False) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(50, 32), nn.Linear(32, 50)
        self.layers = nn.Sequential(*(Layer(parts) for _ in range(3)))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.head(self.layers(self.words(ids))).flatten(0, 1), ids.flatten())


def stepping(
    parts: bool = False, compiled: bool = False, read: bool = True, autocast: bool = False, **options: Any
) -> Make:
    def make() -> Callable[[], Any]:
        torch.manual_seed(0)
        model: nn.Module = Model(parts).to("cpu")
        forward = torch.compile(model) if compiled else model
        optimizer = torch.optim.AdamW(model.parameters(), **options)
        data = torch.randint(50, (400,))

        def step() -> Any:
            rows = torch.stack([data[place : place + 16] for place in torch.randint(len(data) - 16, (8,))])
            with torch.autocast("cpu", torch.bfloat16) if autocast else nullcontext():
                loss = forward(rows)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            return loss.item() if read else None

        return step

    return make


def own_peak(found: StepFigures) -> int:
    """The peak without what is no part of the step, of which the process of the tests holds more."""
    return found.figures["peak_bytes"] - found.parts[OTHERS]


def test_figures_are_those_of_the_measured_step() -> None:
    found, measured = gated_step(stepping(), "cpu", HERE), measure_step(stepping()(), title="a step", blocks=1)
    assert found.figures["peak_bytes"] == sum(found.parts.values())
    assert own_peak(found) == measured.own_peak_bytes
    assert found.figures["saved_bytes"] == measured.held.saved_total_bytes
    assert found.figures["flops"] == sum(measured.flops.values())
    assert found.figures["synchronizations"] == sum(measured.synchronizations.values())
    assert found.torch == torch.__version__.partition("+")[0]
    for name, blocks in found.blocks.items():
        assert sum(one.size for one in blocks) == found.figures[name]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"autocast": True}, {"foreach": True}, {"fused": True}, {"parts": True}])
def test_other_steps_have_the_figures_of_the_measured_ones(options: dict[str, Any]) -> None:
    found = gated_step(stepping(**options), "cpu", HERE)
    measured = measure_step(stepping(**options)(), title="a step", blocks=1)
    assert own_peak(found) == sum(measured.peak_parts.values()) - measured.peak_parts[OTHERS]
    assert own_peak(found) == pytest.approx(measured.own_peak_bytes, rel=2e-4)  # a kernel may take some bytes inside
    assert found.figures["saved_bytes"] == measured.held.saved_total_bytes


def test_a_saved_block_has_its_module_operator_and_line() -> None:
    before, after = (gated_step(stepping(parts=parts), "cpu", HERE) for parts in (False, True))
    grown = {key: size for key, size in saved(after) if size > dict(saved(before)).get(key, 0)}
    line = next(place for place, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "1.702" in text)
    assert grown == {
        ("Layer", "layers.*", "aten.sigmoid", f"test_gated_step.py:{line}"): 3 * 8 * 16 * 64 * 4,
        ("Layer", "layers.*", "aten.mul.Tensor", f"test_gated_step.py:{line}"): 3 * 8 * 16 * 64 * 4,
    }
    assert after.figures["saved_bytes"] > before.figures["saved_bytes"]


def saved(found: StepFigures) -> Iterator[tuple[tuple[str, str, str, str], int]]:
    for one in found.blocks["saved_bytes"]:
        yield (*one.key, one.line), one.size


def test_backward_names_the_line_whose_gradient_it_makes() -> None:
    found = gated_step(stepping(), "cpu", HERE)
    text = Path(__file__).read_text().splitlines()
    line = next(place for place, one in enumerate(text, 1) if "self.down(x * torch" in one)
    (block,) = [one for one in found.blocks["flops"] if one.path == "layers.*.up" and one.part == "backward"]
    assert (block.operator, block.line) == ("AddmmBackward", f"test_gated_step.py:{line - 1}")
    assert block.size == 2 * 3 * 2 * (8 * 16) * 32 * 64


def test_a_whole_number_that_a_step_draws_may_be_read_and_a_loss_may_not_decide() -> None:
    def deciding() -> Callable[[], Any]:
        step = stepping()()

        def decide() -> None:
            if step() > 1.0:
                raise ValueError

        return decide

    with pytest.raises(UsageError, match="a trace computes no values"):
        gated_step(deciding, "cpu", HERE)


@pytest.mark.slow
def test_compiled_code_is_followed_as_eager_code_and_its_breaks_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    with eager_code() as given:
        found = gated_step(stepping(compiled=True), "cpu", HERE)
    assert len(given) == 1
    assert found.figures["peak_bytes"] == gated_step(stepping(), "cpu", HERE).figures["peak_bytes"]
    assert breaks_on_cpu(stepping(compiled=True)) == 0
    forward = Layer.forward

    def printing(layer: Layer, x: torch.Tensor) -> torch.Tensor:
        print("a break")
        return forward(layer, x)

    monkeypatch.setattr(Layer, "forward", printing)
    torch._dynamo.reset()
    assert breaks_on_cpu(stepping(compiled=True)) >= 1
