"""Float8 products of a step: formats by phase, and whether the largest element of a factor uses its format."""

import torch

from assay.instruments.float8 import Float8Products
from assay.step.compiled import CompiledCall

WIDE, NARROW = torch.float8_e4m3fn, torch.float8_e5m2


def product(left: torch.Tensor, right: torch.Tensor) -> CompiledCall:
    return CompiledCall(torch.ops.aten._scaled_mm.default, (left, right), {}, None, again=False)


def factor(largest: float, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([[-largest, 0.0]]).to(dtype)


def test_a_factor_that_does_not_reach_its_formats_largest_number_is_no_full_scale() -> None:
    products = Float8Products()
    full, half, zeros = factor(448.0, WIDE), factor(224.0, WIDE), factor(0.0, WIDE)
    for left, right in ((full, full), (full, half), (half, full), (zeros, full)):
        products.note(product(left, right), "forward", readable=True)
    products.note(product(factor(57344.0, NARROW), full), "backward", readable=True)
    forward, backward = products.products()
    assert (forward.formats, forward.count, forward.full_scale) == (("float8_e4m3fn", "float8_e4m3fn"), 4, 2)
    assert (backward.formats, backward.count, backward.full_scale) == (("float8_e5m2", "float8_e4m3fn"), 1, 1)


def test_factors_without_values_have_formats_only() -> None:
    products = Float8Products()
    products.note(product(factor(1.0, WIDE), factor(1.0, WIDE)), "forward", readable=False)
    assert [(one.count, one.full_scale) for one in products.products()] == [(1, None)]


def test_other_operators_are_passed_by() -> None:
    products = Float8Products()
    some = torch.ones(2, 2)
    products.note(
        CompiledCall(torch.ops.aten.mm.default, (some, some), {}, some, again=False), "forward", readable=True
    )
    assert products.products() == ()
