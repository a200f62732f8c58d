"""Counters of a recorded step: dropout masks by their digest, and float8 products with their scales."""

import sys

import pytest
import torch

from assay.instruments.step_counters import Float8Products, half_again, largest_half_repeated
from assay.launch import rates
from assay.step.compiled import CompiledCall
from assay.worker.programs.repeated_masks import NO_GPU, main

CPU = torch.device("cpu")


def test_half_of_a_mask_that_comes_again_is_found() -> None:
    draws = torch.rand(1000, 12) < 0.8
    before, after, other = draws[:, :8], torch.cat([draws[:, 4:8], draws[:, 8:]], 1), torch.rand(1000, 8) < 0.8
    assert half_again(before.reshape(10, 800), after.reshape(10, 800))
    assert not half_again(before, other)
    assert not half_again(before[:3], after[:3])  # so few agree by chance


def test_a_cpu_repeats_no_mask() -> None:
    assert largest_half_repeated(CPU, most=2**14) == 0


def test_the_largest_mask_that_comes_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dropout that does as torch's on a GPU: below a size, calls move the generator on by half of what they use."""
    draws, moved = torch.rand(2**20) < 0.5, [0]

    def dropout(ones: torch.Tensor, rate: float) -> torch.Tensor:
        if ones.numel() > 2**13:
            return (torch.rand(ones.numel()) > rate).to(ones.dtype)
        threads = ones.numel() // 8
        halves = [draws[(at := moved[0] + one) * threads * 4 : (at + 1) * threads * 4] for one in range(2)]
        moved[0] += 1
        return torch.cat([half.reshape(-1, 4) for half in halves], 1).reshape(-1).to(ones.dtype)

    monkeypatch.setattr(torch.nn.functional, "dropout", dropout)
    assert largest_half_repeated(CPU, most=2**15) == 2**13


def test_without_a_gpu_nothing_can_be_seen() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert main() == NO_GPU


@pytest.mark.parametrize(("program", "answer"), [("print(4096)", 4096), ("print(0)", 0), ("raise SystemExit(2)", None)])
def test_the_parent_reads_the_answer(monkeypatch: pytest.MonkeyPatch, program: str, answer: int | None) -> None:
    monkeypatch.setattr(rates, "_LOOK", (sys.executable, "-c", program))
    assert rates.largest_half_repeated() == answer


@pytest.mark.gpu
@pytest.mark.device_values("masks")
def test_a_gpu_repeats_masks_up_to_a_size() -> None:
    """Seen on an H200: up to 4 · 256 · 8 elements a multiprocessor."""
    device = torch.device("cuda")
    limit = 4 * 256 * 8 * torch.cuda.get_device_properties(device).multi_processor_count
    assert largest_half_repeated(device) in (0, 2 ** (limit.bit_length() - 1))


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
