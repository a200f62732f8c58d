"""float8: refused with what would help, and a proof that counts products in both directions."""

import pytest

from assay.config import Spec
from assay.hardware import Accelerator, Machine
from assay.optimizations import Conflict, Unavailable, fp8, resolve
from assay.step import Operation
from optimizations.laboratory import SHAPE, run_with, traced

FP8 = Spec(name="fp8")
CPU = Machine(processor="any", cores=2, memory_bytes=2**34)


def gpu(capability: tuple[int, int]) -> Machine:
    card = Accelerator(name="a GPU", memory_bytes=2**34, compute_capability=capability)
    return CPU.model_copy(update={"accelerators": (card,)})


def test_what_cannot_do_it_is_refused_with_what_would_help(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_with(FP8)
    there = run.model_copy(update={"device": "cuda"})
    with pytest.raises(Unavailable, match=r"a CPU has not; use a GPU of compute capability 8\.9"):
        resolve(FP8).check(run, CPU)
    with pytest.raises(Unavailable, match="a GPU has no products in float8"):
        resolve(FP8).check(there, gpu((8, 0)))
    monkeypatch.setattr(fp8, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="install torchao"):
        resolve(FP8).check(there, gpu((9, 0)))


def test_shapes_that_the_kernel_does_not_take_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fp8, "find_spec", lambda name: name)
    run = run_with(FP8, model=SHAPE.model_copy(update={"n_embd": 24})).model_copy(update={"device": "cuda"})
    with pytest.raises(Conflict, match=r"multiples of 16; model\.n_embd"):
        resolve(FP8).check(run, gpu((9, 0)))


@pytest.mark.parametrize(("forward", "backward", "verdict"), [(16, 32, True), (16, 0, False), (15, 32, False)])
def test_a_layer_that_stayed_as_it_was_does_not_pass(forward: int, backward: int, verdict: bool) -> None:
    run = run_with(FP8)
    trace = traced(run_with())

    def products(phase: str, count: int) -> Operation:
        made = {"name": "aten._scaled_mm", "operation_class": "contraction", "dtype": "float8_e4m3fn"}
        return Operation.model_validate({**made, "phase": phase, "count": count, "flops": 0, "bytes": 0})

    operations = tuple(products(*one) for one in (("forward", forward), ("backward", backward)) if one[1])
    assert resolve(FP8).verify(trace.model_copy(update={"operations": operations}), run).verdict is verdict
