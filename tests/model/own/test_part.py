"""A model of the user's own as a part: what is no loss is refused with a sentence."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.errors import UsageError
from assay.model.own.part import OwnModel, OwnPart


def summed(returned: Any) -> Tensor:
    part = OwnPart(OwnModel(nn.Linear(1, 1), lambda model, inputs, targets: returned))
    loss: Tensor = part(torch.zeros(3, 1), torch.zeros(3, 2))
    return loss


def test_a_mean_becomes_a_sum_over_targets_in_at_least_32_bits() -> None:
    assert summed(torch.tensor(0.5)) == 3
    assert summed(torch.tensor([0.5], dtype=torch.float16)).dtype is torch.float32
    assert summed(torch.tensor(0.5, dtype=torch.float64)).dtype is torch.float64


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
    ],
)
def test_what_is_no_loss_is_refused(returned: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        summed(returned)
