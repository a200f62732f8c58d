"""A model of the user's own as a part: what a loss returns and counts, and what is refused with a sentence."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.errors import UsageError
from assay.model.own_model import NoLossError, OwnModel, OwnPart

pytestmark = pytest.mark.usefixtures("no_gradients")


@pytest.fixture
def no_gradients() -> Iterator[None]:
    """Numbers stand for losses here, and have no gradient."""
    with torch.no_grad():
        yield


@torch.enable_grad()
def test_a_loss_that_trains_nothing_is_refused() -> None:
    with pytest.raises(NoLossError, match="the loss has no gradient"):
        summed(torch.tensor(0.5))
    with pytest.raises(NoLossError, match="the loss has no gradient"):
        summed((torch.tensor(0.5), 4))
    assert summed(torch.tensor(0.5, requires_grad=True)) == 3


def part_of(returned: Any) -> OwnPart:
    return OwnPart(OwnModel(nn.Linear(1, 1), lambda model, inputs, targets: returned))


def summed(returned: Any) -> Tensor:
    loss: Tensor = part_of(returned)(torch.zeros(3, 1), torch.zeros(3, 2))
    return loss


def test_a_mean_becomes_a_sum_over_targets_in_at_least_32_bits() -> None:
    assert summed(torch.tensor(0.5)) == 3
    assert summed(torch.tensor([0.5], dtype=torch.float16)).dtype is torch.float32
    assert summed(torch.tensor(0.5, dtype=torch.float64)).dtype is torch.float64


@pytest.mark.parametrize("count", [4, 4.0, torch.tensor(4), torch.tensor([4.0])])
def test_a_pair_is_a_sum_and_its_count(count: Any) -> None:
    part = part_of((torch.tensor(3.0, dtype=torch.float16), count))
    loss = part(torch.zeros(3, 1), torch.zeros(3, 2))
    assert (loss, loss.dtype) == (3, torch.float32)
    assert part.tally.last == 4
    assert not isinstance(part.tally.last, Tensor) or part.tally.last.shape == ()


@pytest.mark.parametrize(
    ("targets", "counted"),
    [
        (torch.zeros(3, 2), 6),
        (-torch.ones(3, 2), 6),
        (torch.tensor([[1, 0, -1], [-100, 2, -100]]), 3),
        (torch.tensor([[-1], [-2]]), 2),
        (torch.tensor([[1], [255]], dtype=torch.uint8), 2),
        (torch.tensor([[True], [False]]), 2),
    ],
)
def test_one_number_is_the_mean_over_targets_without_integers_below_zero(targets: Tensor, counted: int) -> None:
    part = part_of(torch.tensor(0.5))
    assert part(torch.zeros(len(targets), 1), targets) == 0.5 * counted
    assert part.tally.last == counted


@pytest.mark.parametrize("weights", [torch.bfloat16, torch.float32, torch.float64])
def test_floating_targets_are_widened_and_integers_stay(weights: torch.dtype) -> None:
    seen: list[torch.dtype] = []

    def loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        seen.extend((inputs.dtype, targets.dtype))
        return model(inputs).mean()

    part = OwnPart(OwnModel(nn.Linear(1, 1), loss)).to(weights)
    part(torch.zeros(3, 1), torch.zeros(3, 1))
    part(torch.zeros(3, 1), torch.zeros(3, 1, dtype=torch.int64))
    wide = torch.float64 if weights is torch.float64 else torch.float32
    assert seen == [weights, wide, weights, torch.int64]


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (None, "is a NoneType; return the mean"),
        (0.5, "is a float; return the mean"),
        (torch.zeros(3, 2), r"is a Tensor of float32, shape \[3, 2\]; return the mean"),
        (torch.tensor(1), r"is a Tensor of int64, shape \[\]; return the mean"),
        (torch.tensor(1j), r"is a Tensor of complex64, shape \[\]; return the mean"),
        ((torch.tensor(1.0),) * 3, "is a tuple; return the mean"),
        ((1.0, 2), "is a float; return the mean"),
        ((torch.tensor(1.0), None), "counted None targets"),
        ((torch.tensor(1.0), -1), "counted -1 targets"),
        ((torch.tensor(1.0), True), "counted True targets"),
        ((torch.tensor(1.0), torch.ones(2)), r"counted tensor\(\[1., 1.\]\) targets"),
        ((torch.tensor(1.0), torch.tensor(True)), r"counted tensor\(True\) targets"),
    ],
)
def test_a_value_that_is_no_loss_is_refused(returned: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        summed(returned)
