"""Lossy gradients judged together: honest rounding passes, and what is systematic does not."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from assay.reference.expected import IN_BFLOAT16
from assay.values.pooled import SHARES, Pooled, _smallest, group_of

NAMES = tuple(f"blocks.{layer}.mlp.{part}.weight" for layer in (0, 1) for part in ("up", "down"))
ERROR = 0.005
"""Relative error of honest rounding here: about one roundoff of bfloat16."""


def drawn() -> Iterator[tuple[int, str, Tensor, Tensor, Tensor]]:
    """Step, name, and the program's, the true and the rounded gradient, with independent errors."""
    generator = torch.Generator().manual_seed(0)

    def noise() -> Tensor:
        return torch.randn(64, 32, generator=generator, dtype=torch.float64)

    for step in range(3):
        for name in NAMES:
            truth = noise()
            yield step, name, truth + ERROR * noise(), truth, truth + ERROR * noise()


def failed(change: Callable[[Tensor], Tensor], mixture: bool = False) -> set[str]:
    pooled = Pooled(IN_BFLOAT16, mixture)
    for step, name, found, truth, rounded in drawn():
        pooled.add(step, name, change(found), truth, [rounded], typical=1.0)
    return {f"{one.what} of {one.name}" for one in pooled.judged() if one.failed}


def without_smallest(gradient: Tensor) -> Tensor:
    return torch.where(
        gradient.abs() <= gradient.abs().flatten().kthvalue(gradient.numel() // 10).values, 0.0, gradient
    )


def without_a_row(gradient: Tensor) -> Tensor:
    return torch.cat([gradient[:-1], torch.zeros_like(gradient[-1:])])


def test_honest_rounding_passes() -> None:
    assert failed(lambda one: one) == set()


def test_a_wrong_scale_of_one_percent_is_seen_and_is_no_residual() -> None:
    assert failed(lambda one: 1.01 * one) == {"scale of MLPs"}


def test_small_elements_that_are_lost_are_seen() -> None:
    assert {"scale of the smallest 10% of MLPs", "scale of the smallest 1% of MLPs"} <= failed(without_smallest)


@pytest.mark.parametrize("seed", range(5))
def test_shares_of_small_elements_are_those_of_sorted_ones(seed: int) -> None:
    generator, least = torch.Generator().manual_seed(seed), 0.05
    truth, found, rounded = torch.randn(3, 40, 50, generator=generator, dtype=torch.float64)
    kept = list(zip(*(one.flatten().tolist() for one in (truth, found, rounded)), strict=True))
    kept = sorted((one for one in kept if abs(one[0]) > least), key=lambda one: abs(one[0]))
    weight = truth.numel() / sum(x * x for x in truth.flatten().tolist())
    for share, sums in zip(SHARES, _smallest(found, truth, [rounded], least, float(truth.norm())), strict=True):
        chosen = kept[: int(share * len(kept))]
        assert sums is not None
        assert sums.truth == pytest.approx(weight * sum(x * x for x, _, _ in chosen))
        assert sums.found == pytest.approx(weight * sum(y * x for x, y, _ in chosen))
        assert sums.rounded == pytest.approx((weight * sum(r * x for x, _, r in chosen),))
        assert sums.variance == pytest.approx(weight**2 * sum(((r - x) * x) ** 2 for x, _, r in chosen))


def test_noise_beyond_that_of_rounding_is_seen() -> None:
    generator = torch.Generator().manual_seed(1)
    found = failed(lambda one: one * (1 + 0.03 * torch.randn(one.shape, generator=generator)))
    assert "residual of MLPs" in found


def test_a_lost_row_is_seen_in_every_tensor() -> None:
    assert {f"gradient of {name}" for name in NAMES} <= failed(without_a_row)


def test_a_token_of_a_mixture_may_go_to_another_expert() -> None:
    assert failed(lambda one: 1.01 * one, mixture=True) == set()
    assert failed(lambda one: 1.2 * one, mixture=True) != set()


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("blocks.0.attention.q_norm.weight", "norms"),
        ("blocks.0.mlp_norm.bias", "norms"),
        ("blocks.0.mlp.experts.up", "MLPs"),
        ("blocks.0.attention.qkv.bias", "attention"),
        ("head.projection.weight", "embeddings"),
    ],
)
def test_every_parameter_is_in_a_group(name: str, group: str) -> None:
    assert group_of(name) == group


def by_several(found: Tensor, imitated_errors: list[Tensor], truth: Tensor) -> set[str]:
    """What fails of one gradient that is held against several imitations."""
    pooled = Pooled(IN_BFLOAT16)
    imitations = [truth + error for error in imitated_errors]
    pooled.add(0, NAMES[0], found, truth, imitations, typical=1.0)
    return {f"{one.what} of {one.name}" for one in pooled.judged() if one.failed}


def test_several_imitations_together_see_a_scale_that_one_of_them_would_let_pass() -> None:
    generator = torch.Generator().manual_seed(2)
    truth, *errors = (torch.randn(64, 32, generator=generator, dtype=torch.float64) for _ in range(6))
    unlike = [0.04 * errors[0], *(ERROR * one for one in errors[1:])]
    assert by_several(1.03 * truth, unlike[:1], truth) == set()
    assert "scale of MLPs" in by_several(1.03 * truth, unlike[1:], truth)
    assert by_several(truth + ERROR * errors[0], unlike[1:], truth) == set()


def test_slopes_that_vary_between_imitations_allow_another_slope() -> None:
    generator = torch.Generator().manual_seed(3)
    truth, noise = (torch.randn(64, 32, generator=generator, dtype=torch.float64) for _ in range(2))
    scales = [0.02 * off * truth + ERROR * noise for off in (-1, -0.5, 0, 0.5, 1)]
    assert by_several(1.03 * truth, scales, truth) == set()
    assert by_several(1.2 * truth, scales, truth) >= {"scale of MLPs"}


def test_bounds_of_several_imitations_do_not_grow_with_their_distance() -> None:
    generator = torch.Generator().manual_seed(4)
    truth, *errors = (torch.randn(64, 32, generator=generator, dtype=torch.float64) for _ in range(7))
    far = [0.03 * one for one in errors[1:]]
    assert by_several(truth + 0.03 * errors[0], far, truth) == set()
    assert "residual of MLPs" in by_several(truth + 0.2 * errors[0], far, truth)


def test_elements_that_are_smaller_than_what_float16_holds_do_not_count() -> None:
    generator = torch.Generator().manual_seed(5)
    truth = torch.randn(64, 32, generator=generator, dtype=torch.float64)
    truth[:2] *= 1e-7
    lost = torch.where(truth.abs() < 1e-6, 0.0, truth)
    assert by_several(lost, [truth - truth * ERROR], truth) == set()


def test_where_rounding_moves_gradients_by_a_third_bounds_have_no_limit() -> None:
    generator = torch.Generator().manual_seed(6)
    truth, *errors = (torch.randn(64, 32, generator=generator, dtype=torch.float64) for _ in range(7))
    for size, refused in ((0.02, True), (0.35, False)):
        imitated = [size * one for one in errors[1:]]
        assert bool(by_several(truth + 10 * size * errors[0], imitated, truth)) == refused


@pytest.mark.parametrize(("errors", "reduced", "accepted"), [(5, False, False), (5, True, True), (20, True, False)])
def test_sums_in_16_bits_widen_the_bounds_of_a_gpu(errors: float, reduced: bool, accepted: bool) -> None:
    """An H200 had errors up to 4.8 times those with sums in float32."""
    pooled, generator = Pooled(IN_BFLOAT16, reduced=reduced), torch.Generator().manual_seed(2)
    for step, name, _found, truth, rounded in drawn():
        noise = torch.randn(64, 32, generator=generator, dtype=torch.float64)
        pooled.add(step, name, truth + errors * ERROR * noise, truth, [rounded], typical=1.0)
    assert all(not one.failed for one in pooled.judged()) is accepted
