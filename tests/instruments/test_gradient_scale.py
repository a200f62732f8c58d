"""Scales of gradients by module, in a step of a program."""

import pytest
import torch

from assay.instruments.gradient_scale import module_of, noting, scales
from assay.records.gradients import ModuleGradient
from assay.training.loop import train_step
from support.runs import run_with, specs_of
from support.steps import build_step


def test_scales_are_root_mean_squares_over_the_members_of_a_module() -> None:
    weight, bias = torch.tensor([[3.0, 4.0]]), torch.tensor([0.0])
    (one,) = scales([("blocks.0.a", weight, 2 * weight), ("blocks.0.b", bias, bias)])
    assert (one.module, one.parameters) == ("block 1", 3)
    assert one.gradient_norm == pytest.approx(10)
    assert one.gradient_rms == pytest.approx((100 / 3) ** 0.5)
    assert one.weight_rms == pytest.approx((25 / 3) ** 0.5)


def test_small_gradients_in_float16_do_not_vanish() -> None:
    tiny = torch.full((4,), 1e-5, dtype=torch.float16)
    assert scales([("embedding.weight", tiny, tiny)])[0].gradient_rms == pytest.approx(1e-5, rel=0.01)


@pytest.mark.parametrize("names", [(), ("fp16_mixed",), ("gradient_accumulation", "activation_checkpointing")])
def test_a_watched_step_notes_what_it_would_do_anyway(names: tuple[str, ...]) -> None:
    plain, watched = (build_step(run_with(*specs_of(names))) for _ in range(2))
    found: list[ModuleGradient] = []
    expected, taken = train_step(plain, 0), train_step(noting(watched, found), 0)
    assert taken.loss == expected.loss
    assert taken.log_gradient_norm == expected.log_gradient_norm
    whole = sum(one.gradient_norm**2 for one in found) ** 0.5
    assert torch.tensor(whole).log().item() == pytest.approx(expected.log_gradient_norm, abs=1e-4)
    assert [one.module for one in found] == list(dict.fromkeys(module_of(name) for name, _ in plain.named_parameters()))
