"""Bounds of lossy gradients: rounding noise passes; a wrong scale, and a row without a gradient, do not."""

import pytest
import torch
from torch import Tensor

from assay.reference.expected import REASSOCIATED, lossy, summed_in_16_bits
from assay.reference.rules import AdamWRule
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


@pytest.mark.parametrize(("dtype", "unit_roundoff"), [(torch.bfloat16, 2**-9), (torch.float16, 2**-12)])
def test_a_sum_of_many_tokens_in_16_bits_is_allowed_for_vectors_alone(dtype: torch.dtype, unit_roundoff: float) -> None:
    tokens = 4096
    plain = lossy(20 * unit_roundoff, slope=4 * unit_roundoff)
    close = plain.model_copy(update={"vectors": summed_in_16_bits(unit_roundoff, tokens)})
    generator = torch.Generator().manual_seed(2)
    terms = torch.randn(tokens, 64, generator=generator) + 0.2
    truth, found = terms.double().sum(0), torch.zeros(64, dtype=dtype)
    for term in terms:
        found += term.to(dtype)
    assert nearness.gradient(0, "norm", found, truth.float(), truth, plain, typical=1.0).failed
    assert not nearness.gradient(0, "norm", found, truth.float(), truth, close, typical=1.0).failed
    assert nearness.gradient(0, "norm", 0.2 * truth, truth.float(), truth, close, typical=1.0).failed
    assert nearness.gradient(0, "weight", 0.9 * TRUTH, TRUTH.float(), TRUTH, close, typical=1.0).failed


def test_where_decay_cancels_a_gradient_adams_first_step_is_mostly_rounding() -> None:
    generator, decay, rate = torch.Generator().manual_seed(3), 0.1, 0.01
    weight = torch.nn.Parameter(0.02 * torch.randn(16, 16, generator=generator))
    gradient = 1e-3 * torch.randn(16, 16, generator=generator)
    gradient[0] = -decay * weight.detach()[0] * (1 + 3e-7)
    weight.grad, before = gradient, weight.detach().clone()
    rule = AdamWRule(weight_decay=decay, beta1=0.9, beta2=0.99, epsilon=1e-8, coupled=True)
    torch.optim.Adam([weight], lr=rate, betas=(0.9, 0.99), weight_decay=decay).step()
    off = gradient * (1 + 6e-8 * torch.randn(16, 16, generator=generator))
    replayed, shaken = (rule.update("weight", before, one, {}, rate) for one in (gradient, off))

    def judged(found: Tensor, shaken: Tensor | None) -> nearness.Judged:
        return nearness.update(0, "weight", before, found, replayed, REASSOCIATED, rounded=False, shaken=shaken)

    assert judged(weight.detach(), None).failed
    assert not judged(weight.detach(), shaken).failed
    assert judged(before + 1.1 * (weight.detach() - before), shaken).failed, "a rate that is a tenth higher"
