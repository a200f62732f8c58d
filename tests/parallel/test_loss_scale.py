"""The dynamic loss scale against torch's own scaler, and what no scale heals."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from assay.parallel import loss_scale
from assay.parallel.loss_scale import SMALLEST, DynamicLossScale
from assay.step.program import Step
from support.runs import run_with
from support.steps import build_step

FINITE, OVERFLOW = torch.tensor(1.0), torch.tensor(float("inf"))


@pytest.fixture(scope="module")
def step() -> Step:
    return build_step(run_with())


def test_it_moves_as_torchs_scaler_does(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_scale, "GROWTH_INTERVAL", 3)
    weight = nn.Parameter(torch.zeros(1))
    reference = torch.amp.GradScaler("cpu", growth_interval=3)
    optimizer, scale = torch.optim.SGD([weight], lr=0.1), DynamicLossScale()
    for norm in [FINITE] * 4 + [OVERFLOW] * 2 + [FINITE] * 2 + [OVERFLOW] + [FINITE] * 7:
        weight.grad = reference.scale(norm).reshape(1).clone()
        reference.step(optimizer)
        reference.update()
        assert scale.skip(step, norm) == bool(norm.isinf())
        assert scale.value == reference.get_scale()


def test_gradients_are_divided_in_place(step: Step) -> None:
    scale = DynamicLossScale(value=8.0)
    for _, parameter in step.named_parameters():
        parameter.grad = torch.full_like(parameter, 4.0)
    scale.unscale(step)
    assert all(bool((_gradient(one) == 0.5).all()) for _, one in step.named_parameters())
    assert float(scale.scale(torch.tensor(2.0))) == 16.0


def test_at_the_smallest_scale_nothing_is_skipped_any_more(step: Step) -> None:
    scale = DynamicLossScale(value=4.0)
    assert [scale.skip(step, OVERFLOW) for _ in range(4)] == [True, True, False, False]
    assert scale.value == SMALLEST


def test_it_goes_on_from_its_state(step: Step) -> None:
    scale, again = DynamicLossScale(), DynamicLossScale()
    scale.skip(step, OVERFLOW)
    scale.skip(step, FINITE)
    again.load_state_dict(scale.state_dict())
    assert again == scale == replace(scale, value=2.0**15, stood=1)


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
