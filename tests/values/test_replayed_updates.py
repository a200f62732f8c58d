"""An update that is mostly rounding is explained by a gradient of which every element is off by a roundoff."""

import pytest
import torch

from assay.reference.expected import REASSOCIATED
from assay.reference.rules import AdamWRule
from assay.values import nearness
from assay.values.replayed_updates import off_by_a_roundoff

RULE = AdamWRule(weight_decay=0.1, beta1=0.9, beta2=0.99, epsilon=1e-8, coupled=True)


def test_no_element_stays_as_it_is() -> None:
    gradient = torch.randn(64, 64)
    moved = (off_by_a_roundoff(gradient, seed=0) / gradient.double() - 1).abs()
    torch.testing.assert_close(moved, torch.full_like(moved, 2**-24), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("seed", range(40))
def test_one_element_that_decay_cancels_is_no_failure(seed: int) -> None:
    generator, rate = torch.Generator().manual_seed(seed), 0.002
    weight = torch.nn.Parameter(0.02 * torch.randn(96, 32, generator=generator))
    gradient = 1e-3 * torch.randn(96, 32, generator=generator)
    gradient[5, 7] = -0.1 * weight.detach()[5, 7] * (1 + 3e-7)
    weight.grad, before = gradient, weight.detach().clone()
    torch.optim.Adam([weight], lr=rate, betas=(0.9, 0.99), weight_decay=0.1).step()
    off = off_by_a_roundoff(gradient, seed)
    replayed, shaken = (RULE.update("weight", before, one, {}, rate) for one in (gradient, off))
    found = nearness.update(0, "weight", before, weight.detach(), replayed, REASSOCIATED, rounded=False, shaken=shaken)
    assert not found.failed
