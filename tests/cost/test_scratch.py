"""The bounds of scratch against what torch's allocator shows, on whatever processor this is."""

from dataclasses import replace
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from assay.config.run import Spec
from assay.cost.attention_tape import FLASH
from assay.cost.operation import Tensor
from assay.cost.scratch import _Product, library_scratch, product_bound
from assay.cost.step_cost import Batch
from assay.estimator import estimate
from assay.hardware import Machine, detect
from assay.instruments.memory.storages import dtype_name
from assay.instruments.memory.tensor_peak import tensor_peak
from support.runs import run_with

HERE = detect().instruction_set
WITHOUT_FLOAT16 = ("avx512_core", "avx512_core_vnni", "avx512_core_bf16")
SHAPES = [
    (96, 384, 96),
    (384, 96, 384),
    (1024, 64, 17),
    (3, 200, 65),
    (1, 64, 1),
    (64, 1536, 1536),
    (339, 32, 339),
    (256, 512, 64),
    (1024, 513, 1024),
    (2, 93, 3722),
    (79, 523, 44),
    (15, 498, 55),
    (1024, 600, 600),
]
PRODUCT = _Product(1, 64, 64, 64)
MACHINE = Machine(processor="any", cores=1, memory_bytes=2**34)


def scratch_bound(product: _Product, dtype: torch.dtype, threads: int) -> int:
    """What the ledger allows a product here."""
    name = dtype_name(dtype)
    taking = {"bfloat16"} if HERE in WITHOUT_FLOAT16 else {"bfloat16", "float16"}
    return product_bound(HERE, name)(product, threads) if HERE.startswith("avx512") and name in taking else 0


@pytest.mark.skipif(not HERE, reason="what this processor's library takes is not known")
@pytest.mark.parametrize("transposed", ["", "left", "right", "left and right"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_product_takes_no_more_than_the_bound(shape: tuple[int, int, int], transposed: str) -> None:
    rows, inner, columns = shape
    left = torch.ones(inner, rows).t() if "left" in transposed else torch.ones(rows, inner)
    right = torch.ones(columns, inner).t() if "right" in transposed else torch.ones(inner, columns)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        bound = scratch_bound(_Product(1, *shape), dtype, torch.get_num_threads())
        a, b = left.to(dtype), right.to(dtype)
        measured = tensor_peak(partial(_multiply, a, b), "cpu")
        assert measured.above_start_bytes == rows * columns * dtype.itemsize
        assert measured.library_scratch_bytes <= bound
        assert measured.with_scratch_bytes == measured.above_start_bytes + measured.library_scratch_bytes


def _multiply(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.mm(a, b)


@pytest.mark.skipif(not HERE, reason="what this processor's library takes is not known")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(2, 3, 256, 8), (1, 2, 33, 16), (1, 2, 800, 24), (1, 1, 8, 600)], ids=str)
def test_buffers_of_fused_attention_are_no_tensors(shape: tuple[int, ...], dtype: str, threads: int) -> None:
    rows, heads, length, depth = shape
    made = torch.empty(rows, length, heads, depth, dtype=getattr(torch, dtype)).transpose(1, 2)
    q, k, v = (torch.ones_like(made).requires_grad_() for _ in range(3))
    results: list[torch.Tensor] = []
    attend = partial(F.scaled_dot_product_attention, q, k, v, is_causal=True)
    forward = tensor_peak(lambda: results.append(attend()), "cpu")
    backward = tensor_peak(partial(results[0].backward, torch.ones_like(made)), "cpu")
    assert forward.above_start_bytes == made.nbytes + 4 * rows * heads * length
    assert backward.above_start_bytes == 3 * made.nbytes
    cost = estimate(run_with(Spec(name="sdpa_attention")), MACHINE).cost
    kernel = next(one for one in cost.tape if one.name == FLASH)
    batch = Batch((Tensor(kernel.inputs[0], shape, dtype),))
    cost = replace(cost, tape=(kernel,), parameters={}, tables=(), batch=batch)
    bound = library_scratch(cost, HERE, threads)
    taken = max(forward.library_scratch_bytes, backward.library_scratch_bytes)
    assert bound is not None
    assert taken <= bound
    if dtype == "float32":
        # Only threads that compute have sums: one number for each query of a block.
        assert bound - taken <= 4 * 256


def test_the_rows_in_which_a_layer_norm_sums_are_no_tensors(threads: int) -> None:
    x, weight, bias = (torch.ones(*shape, requires_grad=True) for shape in ((50, 96), (96,), (96,)))
    out = F.layer_norm(x, (96,), weight, bias)
    measured = tensor_peak(partial(out.backward, torch.ones(50, 96)), "cpu")
    assert measured.above_start_bytes == x.nbytes + weight.nbytes + bias.nbytes
    assert measured.library_scratch_bytes == threads * 2 * weight.nbytes


def test_the_range_follows_instructions_and_dtypes() -> None:
    bf16, fp16, plain = (
        estimate(run_with(*specs), MACHINE).cost
        for specs in ((Spec(name="bf16_mixed"),), (Spec(name="fp16_mixed"),), ())
    )
    assert library_scratch(bf16, "", 1) is None
    rows = 2 * 4 * bf16.values["embedding:tokens"].shape[-1]
    assert library_scratch(bf16, "avx2", 1) == rows
    for name in ("avx512_core", "avx512_core_bf16"):
        most = library_scratch(bf16, name, 1)
        assert most is not None
        assert most > 0
        assert library_scratch(bf16, name, 2) == pytest.approx(2 * most, rel=0.5)
        assert library_scratch(plain, name, 1) == library_scratch(fp16, name, 1) == rows
    for name in ("avx512_core_fp16", "avx512_core_amx"):
        wide, narrow = library_scratch(fp16, name, 1), library_scratch(bf16, name, 1)
        assert wide is not None
        assert narrow is not None
        assert wide > rows
        assert narrow > rows
    # Without tiles a block of float16 is copied as float32.
    assert product_bound("avx512_core_fp16", "float16")(PRODUCT, 1) > product_bound("avx512_core_fp16", "bfloat16")(
        PRODUCT, 1
    )
    assert product_bound("avx512_core_amx_fp16", "float16") is product_bound("avx512_core_amx", "bfloat16")


def test_products_of_an_update_count() -> None:
    muon = estimate(run_with(Spec(name="muon")), MACHINE).cost
    assert library_scratch(muon, "avx512_core_bf16", 1)


def test_an_estimate_and_its_record_have_the_range() -> None:
    machine = MACHINE.model_copy(update={"instruction_set": "avx512_core_bf16"})
    found = estimate(run_with(Spec(name="bf16_mixed")), machine)
    assert found.predicted()["library_scratch_bytes"] == found.library_scratch_bytes
    assert found.library_scratch_bytes
    assert estimate(run_with(), MACHINE).library_scratch_bytes is None
