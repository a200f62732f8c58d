"""TF32: a permission for the length of a step, refused where there are no tensor cores."""

from types import SimpleNamespace
from typing import cast

import pytest
import torch

from assay.config import Spec
from assay.estimator import estimate
from assay.hardware import Accelerator, Machine
from assay.instruments.operations import multiplied_in
from assay.optimizations import Conflict, Unavailable, check, resolve
from assay.training.loop import train_step
from support.runs import run_with
from support.steps import build_step, traced

TF32 = Spec(name="tf32")
CPU = Machine(processor="any", cores=2, memory_bytes=2**34)


def gpu(capability: tuple[int, int]) -> Machine:
    card = Accelerator(name="a GPU", memory_bytes=2**34, compute_capability=capability)
    return CPU.model_copy(update={"accelerators": (card,)})


def test_a_cpu_and_an_old_gpu_are_refused() -> None:
    run = run_with(TF32)
    with pytest.raises(Unavailable, match=r"which a CPU does not have; use a GPU of compute capability 8\.0"):
        check(run, CPU)
    with pytest.raises(Unavailable, match="a GPU is older"):
        check(run.model_copy(update={"device": "cuda"}), gpu((7, 5)))
    check(run.model_copy(update={"device": "cuda"}), gpu((8, 0)))


def test_it_leaves_nothing_to_mixed_precision() -> None:
    run = run_with(TF32, Spec(name="bf16_mixed")).model_copy(update={"device": "cuda"})
    with pytest.raises(Conflict, match="forward precision"):
        check(run, gpu((8, 0)))


def test_only_the_format_of_products_changes() -> None:
    run = run_with(TF32).model_copy(update={"device": "cuda"})
    plain = estimate(run.model_copy(update={"optimizations": ()}), gpu((8, 0)))
    fast = estimate(run, gpu((8, 0)))
    assert fast.flops == {"tf32": plain.flops["float32"]}
    assert fast.timeline == plain.timeline


def test_it_is_allowed_inside_the_step_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    step = build_step(run_with(TF32))
    step.parts[-1].register_forward_hook(lambda *_: seen.append(torch.get_float32_matmul_precision()))
    weight = step.named_parameters()[0][1]
    weight.register_hook(lambda _: seen.append(torch.get_float32_matmul_precision()))  # type: ignore[no-untyped-call]
    train_step(step, 0)
    assert seen == ["high", "high"]
    assert torch.get_float32_matmul_precision() == "highest"


def test_the_trace_tells_what_was_allowed() -> None:
    there, here = ([cast(torch.Tensor, SimpleNamespace(device=torch.device(name)))] for name in ("cuda", "cpu"))
    assert multiplied_in("float32", there) == "float32"
    torch.set_float32_matmul_precision("high")
    try:
        assert [multiplied_in(dtype, there) for dtype in ("float32", "bfloat16")] == ["tf32", "bfloat16"]
        assert multiplied_in("float32", here) == "float32"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_a_product_without_permission_does_not_pass() -> None:
    run = run_with(TF32)
    trace = traced(run)  # on a CPU: allowed, and of no effect
    assert not resolve(TF32).verify(trace, run).verdict
    products = [one for one in trace.operations if one.operation_class == "contraction"]
    fast = [one.model_copy(update={"dtype": "tf32"}) for one in products]
    for operations, verdict in ((fast, True), ([*fast[1:], products[0]], False)):
        found = resolve(TF32).verify(trace.model_copy(update={"operations": tuple(operations)}), run)
        assert found.verdict is verdict
