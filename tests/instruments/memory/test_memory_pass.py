"""The memory pass: two instruments against each other and against sums known beforehand."""

import gc
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

from assay.config import ModelConfig
from assay.config.run import Spec
from assay.hardware import detect
from assay.instruments.memory.memory_pass import heap_of, live_tensor_bytes, memory_pass, steps_of_the_pass
from assay.instruments.memory.tensor_peak import tensor_peak
from assay.training.loop import train_step
from support.runs import run_with
from support.steps import build_step

CPU = torch.device("cpu")
MB = 10**6
SHAPE = ModelConfig(n_layer=2, n_head=2, n_embd=32, context_length=32, vocab_size=500)
BF16 = Spec(name="bf16_mixed", fields={})


def training(*specs: Spec) -> Callable[[], None]:
    """One more step of a tiny run, the first already done."""
    step = build_step(run_with(*specs, model=SHAPE))
    train_step(step, 0)

    def one_step() -> None:
        train_step(step, 1)

    return one_step


@pytest.mark.parametrize("specs", [(), (BF16,)], ids=["float32", "bfloat16"])
def test_two_instruments_agree_and_repeat(specs: tuple[Spec, ...]) -> None:
    one_step = training(*specs)
    gc.collect()
    by_torch = [tensor_peak(one_step, "cpu") for _ in range(3)]
    assert len({(peak.above_start_bytes, peak.instant) for peak in by_torch}) == 1
    by_memray = heap_of(one_step)
    assert by_memray is not None
    # To the byte: what a library takes from torch's allocator for itself is in both.
    assert by_memray.aligned_above_start_bytes == by_torch[0].with_scratch_bytes > 0
    assert by_torch[0].instant == "backward: LogSoftmaxBackward"
    assert by_memray.above_start_bytes > by_memray.aligned_above_start_bytes


def test_memory_that_a_product_requests_for_itself_is_no_tensors() -> None:
    left, right = torch.ones(96, 384, dtype=torch.bfloat16), torch.ones(384, 96, dtype=torch.bfloat16)

    def multiply() -> None:
        product = left @ right
        again = product.clone()
        again.addmm_(left, right, alpha=0.5)

    measured = memory_pass(CPU, multiply, live_bytes=7)
    assert measured.tensors_peak_bytes == 7 + 2 * 96 * 96 * 2
    assert measured.library_scratch_bytes is not None
    assert measured.allocator_peak_bytes == measured.tensors_peak_bytes + measured.library_scratch_bytes
    expected = {"avx2": 0, "avx512_core": 36_992 + 4, "avx512_core_bf16": 74_752 + 4}
    if (known := expected.get(detect().instruction_set)) is not None and torch.get_num_threads() == 1:
        assert measured.library_scratch_bytes == known


def test_a_short_request_is_seen() -> None:
    def spike() -> None:
        kept = torch.ones(1000)
        torch.empty(60 * MB, dtype=torch.uint8)  # gone at once, and never touched
        del kept

    measured = memory_pass(CPU, spike, live_bytes=7)
    assert measured.tensors_peak_bytes == 7 + 60 * MB + 4000
    assert measured.tensors_peak_instant == "forward: aten.empty"
    assert measured.heap_peak_bytes is not None
    assert measured.allocations is not None
    assert measured.allocated_bytes is not None
    assert 60 * MB <= measured.heap_peak_bytes < 60.5 * MB
    assert measured.allocations >= 2
    assert measured.allocated_bytes >= 60 * MB + 4000
    assert measured.reserved_peak_bytes is None
    assert measured.device_peak_bytes is None


def test_a_mapped_file_is_not_memory_of_tensors(tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    with path.open("wb") as stream:
        stream.truncate(400 * MB)

    def read() -> None:
        tokens = np.memmap(path, dtype=np.uint16, mode="r")
        assert int(tokens[: 25 * MB].max()) == 0
        torch.from_numpy(tokens[:1000].astype(np.int64)).sum()

    measured = memory_pass(CPU, read, live_bytes=0)
    assert measured.tensors_peak_bytes == 8, "the sum alone: numpy's memory is not torch's"
    assert measured.heap_peak_bytes is not None
    assert measured.heap_peak_bytes < 2 * MB


def test_nothing_is_left_behind_and_the_heap_is_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[int] = []
    assert heap_of(lambda: seen.append(len(list(tmp_path.iterdir())))) is not None
    assert seen == [1]
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setitem(sys.modules, "memray", None)
    measured = memory_pass(CPU, lambda: None, live_bytes=3)
    assert measured.tensors_peak_bytes == 3
    assert measured.tensors_peak_instant == "none"
    assert measured.heap_peak_bytes is None
    assert measured.allocations is None
    assert measured.allocated_bytes is None


def test_ranks_repeat_the_step_and_do_not_count_the_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.instruments.memory.memory_pass.heap_of", pytest.fail)
    sizes = [5000, 4000, 3000, 6000, 7000]
    left = list(sizes)
    measured = memory_pass(CPU, lambda: (torch.empty(left.pop(), dtype=torch.uint8), None)[1], 0, ranks=2)
    assert measured.tensors_peak_bytes == min(sizes)
    assert measured.heap_peak_bytes is None
    assert steps_of_the_pass(CPU, 2) == len(sizes)
    assert steps_of_the_pass(CPU, 1, heap=False) == 1
    assert steps_of_the_pass(CPU, 1) == steps_of_the_pass(torch.device("cuda"), 2) == 2


def test_instants_are_named() -> None:
    width = 256
    big = torch.nn.Linear(width, width, bias=False)
    optimizer = torch.optim.AdamW(big.parameters(), foreach=False)
    x = torch.ones(1, width)

    def update_wins() -> None:
        big(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    def norm_wins() -> None:
        big(x).sum().backward()
        big.weight.grad.mul(2).add(1)  # type: ignore[union-attr]
        big.zero_grad()

    def forward_wins() -> None:
        with torch.no_grad():
            (x * torch.ones(10 * width, 1)).sum()
        big(x).sum().backward()
        big.zero_grad()

    def inner(one: torch.Tensor) -> torch.Tensor:
        a = one.expand(width, width) * 2
        b = a * 3
        c = a + b
        return c.exp().sum()

    def recompute_wins() -> None:
        leaf = torch.ones(1, width, requires_grad=True)
        checkpoint(inner, leaf * 3, use_reentrant=False).backward()

    def backward_wins() -> None:
        leaf = torch.ones(width, width, requires_grad=True)
        (leaf.exp() * 2).sum().backward()

    update_wins()
    assert tensor_peak(update_wins, "cpu").instant == "update: AdamW"
    assert tensor_peak(norm_wins, "cpu").instant == "update: aten.add"
    assert tensor_peak(forward_wins, "cpu").instant == "forward: aten.mul"
    assert tensor_peak(recompute_wins, "cpu").instant == "recompute: aten.exp"
    assert tensor_peak(backward_wins, "cpu").instant == "backward: ExpBackward"


def test_live_tensors_are_summed_by_storage() -> None:
    before = live_tensor_bytes(CPU)
    x = torch.ones(1000)
    views = [x[:10], x.view(10, 100), x.t()]
    assert live_tensor_bytes(CPU) == before + 4000
    weight = torch.nn.Parameter(torch.ones(500))
    (weight * 2).sum().backward()
    assert live_tensor_bytes(CPU) == before + 4000 + 2000 + 2000, "its gradient too, which Python never asked for"
    lent = torch.from_numpy(np.ones(3000))
    assert live_tensor_bytes(CPU) == before + 8000
    assert live_tensor_bytes(torch.device("meta")) == 0
    del x, views, weight, lent
    assert live_tensor_bytes(CPU) == before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_device_counts_its_own_memory() -> None:
    device = torch.device("cuda")
    kept = torch.ones(1000, device=device)

    def spike() -> None:
        torch.empty(60 * MB, dtype=torch.uint8, device=device)

    first, second = (memory_pass(device, spike, live_tensor_bytes(device)) for _ in range(2))
    assert first.tensors_peak_bytes == second.tensors_peak_bytes
    assert 60 * MB + kept.nbytes <= first.tensors_peak_bytes < 63 * MB
    assert first.reserved_peak_bytes is not None
    assert first.device_peak_bytes is not None
    assert first.tensors_peak_bytes <= first.reserved_peak_bytes <= first.device_peak_bytes
    assert first.tensors_peak_instant == "forward: aten.empty"


def test_a_compilers_stand_ins_are_not_alive() -> None:
    before = live_tensor_bytes(CPU)
    with FakeTensorMode():
        kept = torch.empty(10**6, device="cpu")
    assert kept.device.type == "cpu"
    assert live_tensor_bytes(CPU) == before
