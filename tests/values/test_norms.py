"""The norm of clipped gradients, in the dtype in which the optimizer receives them."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from assay.config import load
from assay.training.gradients import CLIP_EPSILON
from assay.values.without_reference import _norms

RUN: Any = load("demo", ["training.gradient_clip=1.0"])


def faults(norm: float, dtype: torch.dtype, wrong: float = 1.0) -> list[str]:
    """Sentences on gradients of a norm that torch has clipped to `wrong`, as the training does."""
    generator = torch.Generator().manual_seed(3)
    values = [torch.randn(40, 50, generator=generator), torch.randn(300, generator=generator)]
    size = math.sqrt(sum(float(one.double().square().sum()) for one in values))
    gradients = [(one * norm / size).to(dtype) for one in values]
    norm = math.sqrt(sum(float(one.double().square().sum()) for one in gradients))
    torch._foreach_mul_(gradients, wrong / (torch.tensor(norm) + CLIP_EPSILON))
    step = SimpleNamespace(index=0, updated=True, log_norm=math.log(norm))
    recorded: Any = SimpleNamespace(
        steps=[step], tensors=lambda kind, index: {str(number): one for number, one in enumerate(gradients)}
    )
    return list(_norms(recorded, RUN))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_the_factor_of_clipping_is_rounded_to_the_gradients_dtype(dtype: torch.dtype) -> None:
    assert [fault for part in range(1, 60) for fault in faults(1 + 0.017 * part, dtype)] == []


@pytest.mark.parametrize(("dtype", "wrong"), [(torch.float32, 1.001), (torch.bfloat16, 1.012), (torch.bfloat16, 0.988)])
def test_another_norm_is_a_fault(dtype: torch.dtype, wrong: float) -> None:
    (fault,) = faults(1.7, dtype, wrong)
    assert "follows from the reported norm" in fault
