import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.model.rotary import Rotary, rotate


def _at(x: torch.Tensor, position: int, base: float = 10_000.0) -> torch.Tensor:
    """`x [d]` turned as if it stood at `position` of a sequence of 64."""
    row = torch.zeros(1, 1, 64, x.numel(), dtype=x.dtype)
    row[0, 0, position] = x
    return rotate(row, Rotary(64, base))[0, 0, position]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 31), st.integers(0, 31), st.integers(0, 32), st.sampled_from([2, 4, 10, 16]), st.integers(0, 99))
def test_a_product_of_query_and_key_depends_on_their_distance_alone(
    query: int, key: int, shift: int, width: int, seed: int
) -> None:
    q, k = torch.randn(2, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    here = _at(q, query) @ _at(k, key)
    there = _at(q, query + shift) @ _at(k, key + shift)
    torch.testing.assert_close(here, there, rtol=1e-5, atol=1e-5)


@given(st.integers(0, 63), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_turning_keeps_lengths_and_leaves_the_first_position(position: int, seed: int) -> None:
    x = torch.randn(8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(_at(x, position).norm(), x.norm(), rtol=1e-6, atol=0)
    assert torch.equal(_at(x, 0), x)


def test_other_distances_and_bases_turn_otherwise() -> None:
    q, k = torch.randn(2, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert abs(float(_at(q, 5) @ _at(k, 3) - _at(q, 6) @ _at(k, 3))) > 1e-3
    assert not torch.allclose(_at(q, 5), _at(q, 5, base=100.0))


def test_the_dtype_stays_and_tables_made_in_inference_mode_carry_gradients() -> None:
    x = torch.randn(1, 2, 7, 6)
    with torch.inference_mode():
        assert rotate(x.bfloat16(), Rotary(7, 77.0)).dtype == torch.bfloat16
        rotate(x, Rotary(7, 77.0))
    x.requires_grad_()
    rotate(x, Rotary(7, 77.0)).sum().backward()
    assert x.grad is not None
