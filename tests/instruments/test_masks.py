"""Masks that come again in part."""

import sys

import pytest
import torch

from assay.instruments.masks import half_again, largest_half_repeated
from assay.launch import repeated_masks
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
    monkeypatch.setattr(repeated_masks, "_LOOK", (sys.executable, "-c", program))
    assert repeated_masks.largest_half_repeated() == answer


@pytest.mark.gpu
@pytest.mark.device_values("masks")
def test_a_gpu_repeats_masks_up_to_a_size() -> None:
    """Seen on an H200: up to 4 · 256 · 8 elements a multiprocessor."""
    device = torch.device("cuda")
    limit = 4 * 256 * 8 * torch.cuda.get_device_properties(device).multi_processor_count
    assert largest_half_repeated(device) in (0, 2 ** (limit.bit_length() - 1))
