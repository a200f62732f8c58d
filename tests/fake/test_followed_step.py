"""Steps of a user's own are followed, one a call or several: the figures are those of one step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from assay.errors import UsageError
from assay.fake.gated_step import gated_step
from assay.fake.traced_step import FakeMode
from assay.records.own import OTHERS

HERE = Path(__file__).parent


def steps_of(model: nn.Module, count: int, taken: list[int]) -> Callable[[], None]:
    """Return a training of so many steps in a call."""
    optimizer = torch.optim.AdamW(model.parameters())

    def train() -> None:
        for _ in range(count):
            optimizer.zero_grad()
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
            taken.append(1)

    return train


def layers() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))


def test_a_whole_training_has_the_figures_of_its_step_and_ends_with_it() -> None:
    taken: list[int] = []
    training = gated_step(lambda: steps_of(layers(), 10**9, taken), "cpu", HERE)
    assert len(taken) == 2  # the third was counted, and it ends in its update
    step = gated_step(lambda: steps_of(layers(), 1, []), "cpu", HERE)
    assert training.figures == {**step.figures, "peak_bytes": training.figures["peak_bytes"]}
    one, other = ({name: size for name, size in each.parts.items() if name != OTHERS} for each in (training, step))
    assert one == other
    assert training.blocks["saved_bytes"] == step.blocks["saved_bytes"]


def test_an_error_of_a_trainer_that_clears_away_does_not_hide_the_answer() -> None:
    def build() -> Callable[[], None]:
        train = steps_of(layers(), 5, [])

        def fit() -> None:
            try:
                train()
            finally:
                raise RuntimeError("the checkpoint cannot be written")

        return fit

    assert gated_step(build, "cpu", HERE).figures["saved_bytes"] > 0


def test_two_steps_of_a_call_are_one_that_repeats() -> None:
    once, twice = (gated_step(lambda n=n: steps_of(layers(), n, []), "cpu", HERE) for n in (1, 2))  # type: ignore[misc]
    assert twice.figures["flops"] == 2 * once.figures["flops"]


def test_a_call_that_makes_a_new_model_must_train_for_some_steps() -> None:
    def fit(count: int) -> Callable[[], None]:
        return lambda: steps_of(layers(), count, [])()

    assert gated_step(lambda: fit(4), "cpu", HERE).figures["flops"] > 0
    with pytest.raises(UsageError, match="anew; make them once, or let a call train for at least 4 steps"):
        gated_step(lambda: fit(1), "cpu", HERE)


def test_a_step_may_copy_its_model_and_numbers() -> None:
    def build() -> Callable[[], Any]:
        import copy

        start = copy.deepcopy(torch.tensor(2.0))
        assert start == 2  # the copy keeps its value
        model = layers()
        train = steps_of(model, 1, [])

        def step() -> None:
            train()
            average = copy.deepcopy(model)
            (average(torch.ones(2, 8)) + model(torch.ones(2, 8))).sum()

        return step

    assert gated_step(build, "cpu", HERE).figures["peak_bytes"] > 0


def test_libraries_find_no_fake_tensors_in_a_step() -> None:
    seen: list[bool] = []

    class Looks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(isinstance(x, torch._subclasses.FakeTensor))
            return x

    gated_step(lambda: steps_of(nn.Sequential(Looks(), layers()), 1, []), "cpu", HERE)
    assert seen
    assert not any(seen)
    with FakeMode():  # type: ignore[no-untyped-call]
        assert isinstance(torch.empty(1), torch._subclasses.FakeTensor)
