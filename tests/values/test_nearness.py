"""Bounds of lossy gradients: rounding noise passes; a wrong scale, and a row without a gradient, do not."""

import pytest
import torch
from torch import Tensor

from assay.reference.expected import lossy
from assay.values import nearness

CLOSE = lossy(0.1, slope=0.02, loss=1e-3)
TRUTH = torch.randn(64, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def judged(found: Tensor) -> nearness.Judged:
    return nearness.gradient(0, "weight", found, TRUTH.float(), TRUTH, CLOSE, typical=1.0)


def noisy(share: float) -> Tensor:
    return TRUTH * (1 + share * torch.randn(TRUTH.shape, generator=torch.Generator().manual_seed(1)))


def without_a_row() -> Tensor:
    found = noisy(0.01).clone()
    found[7] = 0
    return found


def test_rounding_noise_passes() -> None:
    assert not judged(noisy(0.05)).failed


@pytest.mark.parametrize("found", [noisy(0.2), 0.95 * noisy(0.01), without_a_row()], ids=["noise", "scale", "row"])
def test_large_noise_a_wrong_scale_and_a_lost_row_do_not_pass(found: Tensor) -> None:
    assert judged(found).failed


def test_a_tensor_that_is_zero_in_truth_may_be_rounding() -> None:
    zero = torch.zeros(64, 32, dtype=torch.float64)
    found = torch.full((64, 32), 1e-4, dtype=torch.float64)
    assert not nearness.gradient(0, "bias", found, zero.float(), zero, CLOSE, typical=1.0).failed
