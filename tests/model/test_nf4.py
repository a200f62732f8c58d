"""Matrices in 4 bits a number: what packs and unpacks to what, and products with them."""

from statistics import NormalDist

import pytest
import torch
from torch import Tensor

from assay.config import ModelConfig
from assay.cost.rewrites.four_bits import BLOCK, BLOCKS_AT_ONCE, LEVELS
from assay.model.nf4 import Packing, packed_linear
from assay.reference.merged_weights import Adapters
from support.runs import SHAPE

LAYER = "blocks.0.mlp.up"
SLOW = Adapters(layers=(LAYER,), rank=1, scale=1.0, packs=True)


def rounded(values: Tensor) -> Tensor:
    packing = Packing(values.shape)
    return packing.unpack(packing.pack(values))


def blocks(seed: int) -> Tensor:
    """Blocks of all sizes of numbers: zeros, equal ones, a single one, and ones with the smallest largest."""
    torch.manual_seed(seed)
    found = torch.randn(40, BLOCK) * 10.0 ** torch.randint(-30, 30, (40, 1))
    found[0], found[1], found[2] = 0.0, -0.5, torch.eye(BLOCK)[7]
    found[3] *= 2.0**-126 / found[3].abs().max()
    found[4], found[5] = torch.tensor(2.0**-149), -0.0
    return found


def test_levels_are_quantiles_of_a_normal_distribution() -> None:
    """As `create_normal_map` of bitsandbytes computes them, with 8 quantiles above zero and 7 below."""
    offset, of = 0.9677083, NormalDist().inv_cdf
    sides = [[of(offset + (0.5 - offset) * place / count) for place in range(count)] for count in (8, 7)]
    wanted = sorted([*(one / sides[0][0] for one in sides[0]), 0.0, *(-one / sides[1][0] for one in sides[1])])
    assert pytest.approx(wanted, abs=1e-6) == LEVELS


@pytest.mark.parametrize("seed", range(20))
def test_unpacked_numbers_pack_to_the_same_bytes(seed: int) -> None:
    packing = Packing(torch.Size([40, BLOCK]))
    packed = packing.pack(blocks(seed))
    values = packing.unpack(packed)
    assert torch.equal(packing.pack(values), packed)
    assert torch.equal(packing.unpack(packing.pack(values)).view(torch.int32), values.view(torch.int32))


@pytest.mark.parametrize("seed", range(20))
def test_numbers_are_those_of_the_slow_reference(seed: int) -> None:
    weight = blocks(seed)[:, :32].reshape(128, -1)[:, :10].repeat(1, 4)[:, :32].contiguous()
    model = ModelConfig.model_validate(SHAPE.model_dump())
    packing, name = Packing(weight.shape), f"{LAYER}.weight"
    packed = packing.pack(weight)
    assert torch.equal(SLOW.rounded(name, weight), packing.unpack(packed))
    assert torch.equal(SLOW.unpacked({name: packed}, model)[name], packing.unpack(packed))


def test_no_number_is_nearer_to_another_level() -> None:
    values = blocks(0)[6:]
    largest = values.abs().amax(1, keepdim=True)
    distances = (values.double()[..., None] / largest.double()[..., None] - torch.tensor(LEVELS).double()).abs()
    error = (rounded(values).double() / largest - values.double() / largest).abs()
    torch.testing.assert_close(error, distances.amin(-1), atol=1e-7, rtol=0)


def test_many_blocks_are_unpacked_some_at_once() -> None:
    torch.manual_seed(0)
    values = torch.randn(BLOCKS_AT_ONCE + 3, BLOCK)
    whole = rounded(values)
    parts = [rounded(one.contiguous()) for one in (values[:5], values[5:-4], values[-4:])]
    assert torch.equal(whole, torch.cat(parts))


def test_a_packed_matrix_has_four_and_a_half_bits_a_number() -> None:
    packed = Packing(torch.Size([96, 32])).pack(torch.randn(96, 32))
    assert packed.nbytes * 8 == 4.5 * 96 * 32


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("low", [False, True])
def test_a_product_is_that_of_the_unpacked_matrix(bias: bool, low: bool) -> None:
    torch.manual_seed(0)
    packing, x = Packing(torch.Size([96, 32])), torch.randn(2, 3, 32, requires_grad=True)
    packed, added = packing.pack(torch.randn(96, 32)), torch.randn(96) if bias else None
    plain = x.detach().clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=low):
        here = packed_linear(x, packed, added, packing)
        there = torch.nn.functional.linear(plain, packing.unpack(packed), added)
    assert here.dtype == there.dtype
    torch.testing.assert_close(here, there)
    for one in (here, there):
        one.float().square().sum().backward()
    torch.testing.assert_close(x.grad, plain.grad)


def test_backward_holds_the_packed_matrix_alone() -> None:
    packing, x = Packing(torch.Size([96, 32])), torch.randn(4, 32, requires_grad=True)
    packed, saved = packing.pack(torch.randn(96, 32)), list[Tensor]()
    with torch.autograd.graph.saved_tensors_hooks(lambda one: saved.append(one) or one, lambda one: one):
        packed_linear(x, packed, None, packing)
    assert [one.data_ptr() for one in saved] == [packed.data_ptr()]
