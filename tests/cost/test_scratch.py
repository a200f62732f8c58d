"""The bound of oneDNN's scratch against what torch's allocator shows, on whatever processor this is."""

from functools import partial

import pytest
import torch

from assay.config.run import Spec
from assay.cost.scratch import _accumulated, _blocks, _Product, library_scratch
from assay.estimator import estimate
from assay.hardware import Machine, detect
from assay.measure.memory.tensor_peak import tensor_peak
from support.runs import run_with

HERE = detect().instruction_set
SHAPES = [(96, 384, 96), (384, 96, 384), (1024, 64, 17), (3, 200, 65), (1, 64, 1), (64, 1536, 1536), (339, 32, 339)]
MACHINE = Machine(processor="any", cores=1, memory_bytes=2**34)


def scratch_bound(product: _Product, threads: int) -> int:
    """What the ledger allows a product in bfloat16 here."""
    if not HERE.startswith("avx512"):
        return 0
    return (_accumulated if HERE in ("avx512_core", "avx512_core_vnni") else _blocks)(product, threads)


@pytest.mark.skipif(not HERE, reason="what this processor's library takes is not known")
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_product_takes_no_more_than_the_bound(shape: tuple[int, int, int], transposed: bool) -> None:
    rows, inner, columns = shape
    left, right = torch.ones(rows, inner), torch.ones(columns, inner).t() if transposed else torch.ones(inner, columns)
    narrow = scratch_bound(_Product(1, *shape), torch.get_num_threads())
    for dtype, bound in ((torch.bfloat16, narrow), (torch.float32, 0)):
        a, b = left.to(dtype), right.to(dtype)
        measured = tensor_peak(partial(_multiply, a, b), "cpu")
        assert measured.above_start_bytes == rows * columns * dtype.itemsize
        assert measured.library_scratch_bytes <= bound
        assert measured.with_scratch_bytes == measured.above_start_bytes + measured.library_scratch_bytes


def _multiply(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.mm(a, b)


def test_the_range_follows_instructions_and_dtypes() -> None:
    bf16, fp16, plain = (
        estimate(run_with(*specs), MACHINE).cost
        for specs in ((Spec(name="bf16_mixed"),), (Spec(name="fp16_mixed"),), ())
    )
    assert library_scratch(bf16, "", 1) is None
    assert library_scratch(bf16, "avx2", 1) == 0
    for name in ("avx512_core", "avx512_core_bf16"):
        most = library_scratch(bf16, name, 1)
        assert most is not None
        assert most > 0
        assert library_scratch(bf16, name, 2) == pytest.approx(2 * most, rel=0.5)
        assert library_scratch(plain, name, 1) == library_scratch(fp16, name, 1) == 0
    assert library_scratch(fp16, "avx512_core_fp16", 1) == library_scratch(bf16, "avx512_core_fp16", 1)


def test_products_of_an_update_count() -> None:
    muon = estimate(run_with(Spec(name="muon")), MACHINE).cost
    assert library_scratch(muon, "avx512_core_bf16", 1)


def test_an_estimate_and_its_record_have_the_range() -> None:
    machine = MACHINE.model_copy(update={"instruction_set": "avx512_core_bf16"})
    found = estimate(run_with(Spec(name="bf16_mixed")), machine)
    assert found.predicted()["library_scratch_bytes"] == found.library_scratch_bytes
    assert found.library_scratch_bytes
    assert estimate(run_with(), MACHINE).library_scratch_bytes is None
