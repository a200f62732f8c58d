"""Imitated rounding: it is torch's own, forward and backward, where the imitation says so."""

import math
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from assay.reference.expected import Rounding
from assay.values.rounding import FusedAttention, Imitated, _to_11_bits, round_in_place, round_to

WIDE = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.mark.parametrize("name", WIDE)
def test_products_round_as_autocast_does(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(16, 24, generator=generator) for _ in range(2))
    found, autocast = [], []
    for out, context in (
        (found, Imitated(Rounding(dtype=name))),  # type: ignore[arg-type]
        (autocast, torch.autocast("cpu", dtype=WIDE[name])),
    ):
        leaf = weight.clone().requires_grad_()
        with context:
            y = F.linear(x, leaf)
        with context if isinstance(context, Imitated) else torch.enable_grad():
            y.float().square().sum().backward()
        out += [y.detach().float(), leaf.grad]
    exact = x @ weight.t()
    # Sums in another order may round to a neighbour, which few elements do.
    for one, other in zip(found, autocast, strict=True):
        assert one is not None
        assert other is not None
        assert (one != other).float().mean() < 0.05
    assert not torch.equal(found[0], exact)  # type: ignore[arg-type]


def test_products_with_a_router_stay_wide_and_so_do_its_probabilities() -> None:
    x, router = torch.randn(8, 16), torch.randn(16, 4)
    with Imitated(Rounding(dtype="bfloat16"), [router]):
        found = (x @ router).softmax(dim=-1)
    assert torch.equal(found, (x @ router).softmax(dim=-1))


def test_everywhere_also_what_is_no_product_rounds() -> None:
    x = torch.randn(64)
    with Imitated(Rounding(dtype="bfloat16", everywhere=True)):
        found = x.exp()
    assert torch.equal(found, x.exp().bfloat16().float())


def test_everywhere_a_product_rounds_what_was_written_since_it_was_rounded() -> None:
    x, weight, off = torch.randn(3, 16, 16)
    narrow = x.exp().bfloat16().float()
    with Imitated(Rounding(dtype="bfloat16", everywhere=True)):
        once = x.exp()
        assert torch.equal(once @ weight, (narrow @ weight.bfloat16().float()).bfloat16().float())
        once.view(-1).add_(0.01 * off.view(-1))
        found = once @ weight
    assert torch.equal(found, (once.bfloat16().float() @ weight.bfloat16().float()).bfloat16().float())
    assert not torch.equal(once, once.bfloat16().float())


@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1.0, 3e4, 1e30])
def test_float16_has_eleven_bits_at_any_scale(scale: float) -> None:
    numbers = scale * torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    found, rounded = _to_11_bits(numbers, torch.float16), round_to(numbers, torch.float16)
    assert (found != rounded).float().mean() < 1e-3  # a number between two neighbours, or one that a range has lost
    assert ((found - numbers).abs() / numbers.abs()).max() <= torch.finfo(torch.float16).eps / 2
    masked = torch.tensor([math.inf, 1 / 3, -math.inf, math.nan])
    assert torch.equal(_to_11_bits(masked, torch.float16)[:3], masked.half().float()[:3])
    assert _to_11_bits(masked, torch.float16)[3].isnan()
    for kept in (numbers[:1], numbers.double()):
        assert torch.equal(_to_11_bits(kept, torch.float16), round_to(kept, torch.float16))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn])
def test_small_numbers_are_rounded_and_not_lost(dtype: torch.dtype) -> None:
    small = 1e-12 * (1 + torch.rand(100))
    relative = (round_to(small, dtype) - small).abs() / small
    assert 0 < relative.max() <= torch.finfo(dtype).eps / 2


@pytest.mark.parametrize("scale", [1e-9, 1.0, 3e4])
@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16])
def test_numbers_are_those_of_torchs_own_conversion(dtype: torch.dtype, scale: float) -> None:
    whole = scale * torch.randn(48, 40, generator=torch.Generator().manual_seed(0))
    for tensor in (whole, whole.T, whole[::3, 4:30], whole.view(6, 8, 40).transpose(0, 1)):
        found = round_to(tensor, dtype)
        factors = (2.0**exponent for exponent in range(-40, 60)) if dtype is not torch.bfloat16 else (1.0,)
        assert any(torch.equal(found, (tensor * one).to(dtype).float() / one) for one in factors)
        assert found.stride() == (tensor * 1.0).stride()
    assert round_to(whole.expand(3, 48, 40), dtype).shape == (3, 48, 40)


def test_float16_gradients_that_are_stored_unscaled_lose_small_numbers() -> None:
    gradient = torch.tensor([1e-9, 1.0])
    round_in_place([gradient], Rounding(dtype="float16"))
    assert gradient[0] > 0
    round_in_place([gradient], Rounding(dtype="float16", everywhere=True))
    assert gradient.tolist() == [0.0, 1.0]


def test_a_norm_of_small_activations_does_not_overflow_backward() -> None:
    x = (1e-3 * torch.randn(4096, 32)).requires_grad_()
    weight = torch.ones(32, requires_grad=True)
    with Imitated(Rounding(dtype="float16", everywhere=True)):
        F.layer_norm(x, (32,), weight).sum().backward()
    for one in (x, weight):
        assert one.grad is not None
        assert one.grad.isfinite().all()


SCORES = 1000.0
"""Factor on scores. Their logsumexp is then as large, and float32 rounds it to 6e-5."""


def value_gradient(dtype: torch.dtype, context: AbstractContextManager[object], *, fused: bool = False) -> Tensor:
    """The gradient of the values of an attention with large scores, in float64."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, out = (torch.randn(2, 4, 32, 16, generator=generator).to(dtype) for _ in range(4))
    q, v = SCORES * q, v.requires_grad_()
    with context:
        if fused:
            found = F.scaled_dot_product_attention(q, k.requires_grad_(), v, is_causal=True)
        else:
            future = torch.ones(32, 32, dtype=torch.bool).triu(1)
            scores = ((q @ k.transpose(-2, -1)) / math.sqrt(16)).masked_fill(future, float("-inf"))
            found = scores.softmax(dim=-1) @ v
        (gradient,) = torch.autograd.grad((found * out).sum(), v)
    return gradient.double()


def test_gradients_of_a_token_that_comes_often_are_added_up_in_few_bits() -> None:
    generator = torch.Generator().manual_seed(0)
    ids, weight = torch.zeros(1, 512, dtype=torch.long), torch.randn(3, 8, generator=generator)
    seen = 1 + 0.1 * torch.randn(1, 512, 8, generator=generator)

    def gradient(leaf: Tensor, context: AbstractContextManager[object]) -> Tensor:
        with context:
            F.embedding(ids, leaf).backward(seen.to(leaf))
        assert leaf.grad is not None
        return leaf.grad.float()[0]

    exact, narrow, imitated = (
        gradient(leaf.requires_grad_(), context)
        for leaf, context in (
            (weight.clone(), nullcontext()),
            (weight.bfloat16(), nullcontext()),
            (weight.clone(), Imitated(Rounding(dtype="bfloat16", everywhere=True))),
        )
    )
    error, found = (float((one - exact).norm() / exact.norm()) for one in (narrow, imitated))
    assert error > 0.01  # a sum of 512 in 8 bits of mantissa
    assert found == pytest.approx(error, rel=0.1)


def test_a_fused_attention_has_the_error_of_its_logsumexp() -> None:
    truth = value_gradient(torch.float64, nullcontext())
    plain, fused, imitated = (
        float((one - truth).norm() / truth.norm())
        for one in (
            value_gradient(torch.float32, nullcontext()),
            value_gradient(torch.float32, nullcontext(), fused=True),
            value_gradient(torch.float32, FusedAttention()),
        )
    )
    assert fused > 2 * plain
    assert imitated == pytest.approx(fused, rel=0.5)


def test_the_forward_has_the_largest_score_subtracted_and_so_no_such_error() -> None:
    scores = SCORES * torch.randn(2, 4, 8, 8)
    with FusedAttention():
        found = scores.softmax(dim=-1)
    assert torch.equal(found, scores.softmax(dim=-1))
