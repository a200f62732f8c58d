"""Rules of memory on CUDA, each with the figure that torch's source or a GPU has for it."""

import pytest
import torch

from assay.absent.gpus import absent_device
from assay.cost.gpu_kernels import cublas_workspace, cublaslt_workspace
from assay.fake import cuda

aten = torch.ops.aten


def on_meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor without memory."""
    return torch.empty(shape, dtype=dtype, device="meta")


@pytest.mark.parametrize(("device", "nbytes"), [("h200", 32 * 2**20), ("a100", 8_519_680), ("t4", 8_519_680)])
def test_the_workspace_of_cublas_depends_on_the_capability(device: str, nbytes: int) -> None:
    assert cublas_workspace(absent_device(device).capability) == nbytes


def test_variables_replace_the_workspaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:2:16:8")
    monkeypatch.setenv("CUBLASLT_WORKSPACE_SIZE", "2048")
    assert cublas_workspace((9, 0)) == 2**10 * (4096 * 2 + 16 * 8)
    assert cublaslt_workspace() == 2 * 2**20


@pytest.mark.parametrize(
    ("bias", "rows", "second", "uses"),
    [((16,), (4, 8), (8, 16), True), ((4, 16), (4, 8), (8, 16), False), ((1,), (4, 8), (8, 1), False)],
)
def test_cublaslt_adds_a_bias_of_one_row(
    bias: tuple[int, ...], rows: tuple[int, ...], second: tuple[int, ...], uses: bool
) -> None:
    assert cuda.uses_cublaslt(aten.addmm.default, (on_meta(*bias), on_meta(*rows), on_meta(*second))) is uses


def test_a_product_without_a_bias_needs_no_cublaslt() -> None:
    assert not cuda.uses_cublaslt(aten.mm.default, (on_meta(4, 8), on_meta(8, 16)))


@pytest.mark.parametrize(("dtype", "nbytes"), [(torch.float32, 4 * 64), (torch.bfloat16, 2 * 64)])
def test_softmax_backward_takes_a_tensor_like_its_gradient(dtype: torch.dtype, nbytes: int) -> None:
    given = (on_meta(8, 8, dtype=dtype), on_meta(8, 8, dtype=dtype))
    assert cuda.softmax_backward_bytes(aten._softmax_backward_data.default, given) == nbytes
    assert cuda.softmax_backward_bytes(aten._log_softmax_backward_data.default, given) == 0


def test_a_sum_of_another_type_copies_its_input() -> None:
    h200 = absent_device("h200").gpu
    mask = on_meta(1000, dtype=torch.bool)
    assert cuda.reduction_bytes(aten.sum.default, (mask,), torch.int64, h200) == 8000
    half = on_meta(1000, dtype=torch.bfloat16)
    assert cuda.reduction_bytes(aten.sum.default, (half,), torch.float32, h200) == 0


def test_the_bias_of_a_large_head_takes_90_megabytes_to_be_summed() -> None:
    gradient = on_meta(1393, 8000, dtype=torch.bfloat16)
    found = cuda.reduction_bytes(aten.sum.dim_IntList, (gradient, [0]), torch.bfloat16, absent_device("h200").gpu)
    assert found == 90_112_252  # the row `torch encoder bf16 odd`: 90,112,000 for partial sums, and their semaphores


def test_seed_and_offset_of_the_memory_efficient_kernel_are_on_the_host() -> None:
    results = tuple(on_meta(1) for _ in range(4))
    efficient = aten._scaled_dot_product_efficient_attention.default
    assert cuda.host_results(efficient, results) == results[2:]
    assert cuda.host_results(aten.mm.default, results) == ()
