"""Bytes inside kernels of a GPU: figures that torch 2.11 asked for on an absent H200, operator by operator."""

import pytest

from assay.cost import gpu_kernels
from assay.cost.kernels import Gpu

H200 = Gpu((9, 0), 132, 2048)


@pytest.mark.parametrize(
    ("heads", "length", "depth", "ahead", "back"),
    [
        (24, 256, 64, 0, 1_597_440),
        (1, 64, 64, 0, 33_280),
        (24, 1000, 64, 0, 6_389_760),
        (48, 339, 16, 0, 2_433_024),
        (16, 100, 128, 0, 1_056_768),
        (4, 1024, 32, 2_162_688, 540_672),
        (2, 1024, 64, 2_129_920, 532_480),
    ],
)
def test_flash_attention_splits_few_heads_and_sums_gradients_in_float32(
    heads: int, length: int, depth: int, ahead: int, back: int
) -> None:
    assert gpu_kernels.flash_forward(heads, length, depth, H200, noise=False) == ahead
    assert gpu_kernels.flash_forward(heads, length, depth, H200, noise=True) == 0
    assert gpu_kernels.flash_backward(heads, length, depth) == back


@pytest.mark.parametrize(
    ("heads", "length", "depth", "itemsize", "nbytes"),
    [
        (24, 256, 64, 2, 1_598_976),
        (24, 256, 64, 4, 1_622_016),
        (48, 339, 16, 2, 4_788_288),
        (16, 100, 128, 2, 1_055_232),
        (16, 100, 128, 4, 1_055_488),
        (4, 300, 128, 2, 791_424),
        (2, 1024, 64, 4, 540_672),
    ],
)
def test_the_memory_efficient_kernel_takes_blocks_of_queries(
    heads: int, length: int, depth: int, itemsize: int, nbytes: int
) -> None:
    assert gpu_kernels.efficient_backward(heads, length, depth, itemsize) == nbytes


@pytest.mark.parametrize(
    ("rows", "width", "itemsize", "parameters", "nbytes"),
    [
        (65_536, 768, 4, 2, 0),
        (100_000, 8192, 4, 2, 0),
        (100_000, 384, 4, 2, 16_842_252),
        (100_000, 384, 4, 1, 12_648_972),
        (100_000, 384, 2, 2, 12_648_204),
        (100_000, 64, 2, 1, 809_732),
        (70_000, 2048, 4, 2, 8_396_800),
    ],
)
def test_norms_of_many_short_rows_sum_their_weights_gradients_by_parts(
    rows: int, width: int, itemsize: int, parameters: int, nbytes: int
) -> None:
    assert gpu_kernels.norm_backward(rows, width, itemsize, parameters, H200) == nbytes


@pytest.mark.parametrize(("indices", "nbytes"), [(3072, 0), (3073, 10_533_336), (8192, 28_081_576)])
def test_many_indices_of_an_embedding_are_sorted(indices: int, nbytes: int) -> None:
    assert gpu_kernels.embedding_backward(indices, 50_257, 768) == nbytes


def test_norms_of_gradients_are_sums_of_chunks() -> None:
    assert gpu_kernels.norms_of_list([50_257 * 768]) == 2356
    assert gpu_kernels.norms_of_list([15] * 10) == 40
    assert gpu_kernels.norms_of_list([10**6] * 3 + [7]) == 256
    assert gpu_kernels.norm_of_one(50_257 * 768, H200) == 2116
    assert gpu_kernels.norm_of_one(10**6, H200) == 496
    assert gpu_kernels.norm_of_one(15, H200) == 0


def test_the_search_for_rows_without_a_score_takes_a_mask_of_all_scores() -> None:
    assert gpu_kernels.safe_softmax(16 * 64 * 64, 64) == 65_536 + 1024 + 4
    assert gpu_kernels.safe_softmax(12 * 339 * 339, 339) == 1_379_052 + 4068 + 4


def test_norms_along_a_tall_matrix_take_partial_sums_across_it_only() -> None:
    """A trace of Adafactor and an absent H200 agree on this figure to the byte."""
    assert gpu_kernels.norm_along((50_257, 128), -1, H200) == 0
    assert gpu_kernels.norm_along((50_257, 128), -2, H200) == 51_511_300


def test_a_hopper_multiplies_all_groups_at_once() -> None:
    assert [gpu_kernels.grouped_product(groups, H200) for groups in (2, 4, 8)] == [67_704, 67_824, 68_064]
    assert gpu_kernels.grouped_product(4, Gpu((8, 0), 108, 2048)) == 0  # an absent A100
