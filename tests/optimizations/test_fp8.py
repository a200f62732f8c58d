"""float8: bytes predicted exactly, a proof that counts products in both directions, and no layer left behind."""

from contextlib import nullcontext
from typing import get_args

import pytest
import torch
from torch import nn

from assay.config import ModelConfig, Spec
from assay.estimator import estimate
from assay.hardware import Accelerator, Machine
from assay.instruments.memory.memory_pass import live_tensor_bytes, memory_pass
from assay.optimizations import Conflict, Unavailable, Unpredicted, fp8, resolve
from assay.records.trace import Float8Product, Phase, TracedOperation
from assay.step import float8_products
from assay.training.loop import train_step
from support.runs import SHAPE, run_with, specs_of
from support.steps import build_step, losses, traced
from support.swapped import proof_of, traced_after
from support.traces import altered

FP8 = Spec(name="fp8")
CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
LLAMA = SHAPE.model_copy(
    update={"norm": "rmsnorm", "activation": "swiglu", "n_hidden": 96, "position": "rotary", "bias": False}
)
WIDE = ModelConfig(n_layer=2, n_head=4, n_embd=128, context_length=64, vocab_size=65)


def gpu(capability: tuple[int, int]) -> Machine:
    card = Accelerator(name="a GPU", memory_bytes=2**34, compute_capability=capability)
    return CPU.model_copy(update={"accelerators": (card,)})


def test_a_machine_that_cannot_do_it_is_refused_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    there = run_with(FP8).model_copy(update={"device": "cuda"})
    with pytest.raises(Unavailable, match=r"a GPU cannot multiply in float8; use a GPU of compute capability 8\.9"):
        resolve(FP8).check(there, gpu((8, 0)))
    resolve(FP8).check(there, gpu((9, 0)))
    monkeypatch.setattr(fp8, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'assay\[low-bit\]'"):
        resolve(FP8).check(run_with(FP8), CPU)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n_embd": 24, "n_hidden": 96}, r"model\.n_embd is 24; set it to 32"),
        ({"activation": "swiglu"}, r"model\.n_hidden is 88; set it to 96"),
        ({"context_length": 10}, r"model\.context_length is 10; set it to 16"),
        ({"n_head": 8, "n_kv_head": 1}, r"attention\.qkv\.weight is 40 × 32; choose another model\.n_head"),
    ],
)
def test_shapes_that_the_kernel_does_not_take_are_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(Conflict, match=said):
        resolve(FP8).check(run_with(FP8, model=SHAPE.model_copy(update=change)), CPU)


@pytest.mark.parametrize("beside", ["", "activation_checkpointing", "gradient_accumulation", "sdpa_attention"])
@pytest.mark.parametrize("model", [SHAPE, LLAMA], ids=["gpt2", "llama"])
def test_every_layer_multiplies_in_float8_and_keeps_what_is_predicted(beside: str, model: ModelConfig) -> None:
    run = run_with(FP8, *specs_of([beside] if beside else []), model=model)
    trace, known = traced(run), estimate(run, CPU)
    evidence = resolve(FP8).verify(trace, run)
    assert evidence.verdict, evidence.observed
    assert trace.memory.saved_total_bytes == known.timeline.saved_bytes
    assert trace.memory.parameter_bytes == known.cost.parameter_bytes
    assert trace.memory.optimizer_state_bytes == known.cost.optimizer_state_bytes
    assert sum(map(trace.flops, get_args(Phase))) == sum(known.flops.values())


@pytest.mark.parametrize("beside", [(), ("activation_checkpointing", "optimizer_in_backward")], ids=["alone", "stack"])
def test_the_peak_is_where_it_is_predicted(beside: tuple[str, ...]) -> None:
    """Inside a layer's backward, where rounding makes wide copies. Scales, a number each, are left out."""
    run = run_with(FP8, *specs_of(beside), model=WIDE)
    predicted, device = estimate(run, CPU).timeline.peak, torch.device("cpu")
    others = live_tensor_bytes(device)
    step = build_step(run)
    for index in range(2):
        train_step(step, index)
    measured = memory_pass(device, lambda: (train_step(step, 2), None)[1], live_tensor_bytes(device) - others)
    assert predicted.nbytes == pytest.approx(measured.tensors_peak_bytes, rel=1e-3)
    assert predicted.label == measured.tensors_peak_instant == "backward: matmul_with_hp_or_float8_argsBackward"


def test_training_stays_near_that_in_float32() -> None:
    rounded, plain = losses(run_with(FP8)), losses(run_with())
    assert rounded == pytest.approx(plain, rel=2e-2)
    assert rounded != plain


def as_it_was(layer: nn.Linear) -> None:
    layer.forward = nn.Linear.forward.__get__(layer)  # type: ignore[method-assign]


@pytest.mark.parametrize("how_many", [1, 16])
def test_layers_that_stayed_as_they_were_do_not_pass(how_many: int) -> None:
    def undo(part: nn.Module) -> None:
        inside = [one for name, one in part.named_modules() if isinstance(one, nn.Linear) and name.startswith("blocks")]
        for layer in inside[:how_many]:
            as_it_was(layer)

    evidence = proof_of(run_with(FP8), traced_after(undo, run_with(FP8)))
    assert not evidence.verdict
    assert f"{16 - how_many} float8 products in forward" in evidence.observed


@pytest.mark.parametrize(("forward", "backward", "verdict"), [(16, 32, True), (16, 0, False), (15, 32, False)])
def test_a_direction_that_is_not_in_float8_does_not_pass(forward: int, backward: int, verdict: bool) -> None:
    run = run_with(FP8)
    trace = traced(run_with())

    def products(phase: str, count: int) -> TracedOperation:
        made = {"name": "aten._scaled_mm", "operation_class": "contraction", "dtype": "float8_e4m3fn"}
        return TracedOperation.model_validate({**made, "phase": phase, "count": count, "flops": 0, "bytes": 0})

    rest = tuple(
        one.model_copy(update={"dtype": "bfloat16"}) for one in traced(run_with()).operations if "bmm" in one.name
    )
    operations = (*rest, *(products(*one) for one in (("forward", forward), ("backward", backward)) if one[1]))
    changed = {"operations": operations, "float8": factors(forward, backward)}
    assert resolve(FP8).verify(altered(trace, **changed), run).verdict is verdict


def factors(forward: int, backward: int, gradients: str = "float8_e5m2", lost: int = 0) -> tuple[Float8Product, ...]:
    """As a trace has them, with scales lost in so many products of forward."""
    precise = "float8_e4m3fn"
    return (
        Float8Product(phase="forward", formats=(precise, precise), count=forward, full_scale=forward - lost),
        Float8Product(phase="backward", formats=(gradients, precise), count=backward, full_scale=backward),
    )


def test_formats_and_scales_of_a_step_are_read() -> None:
    assert traced(run_with(FP8)).precision.float8 == factors(16, 32)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (factors(16, 32, lost=1), "1 of 48 products do not use the whole range of their formats"),
        (factors(16, 32, gradients="float8_e4m3fn"), "32 of float8_e4m3fn × float8_e4m3fn in backward"),
        ((), "the formats of some factors are unknown"),
    ],
)
def test_other_formats_and_lost_scales_do_not_pass(found: tuple[Float8Product, ...], said: str) -> None:
    run = run_with(FP8)
    evidence = resolve(FP8).verify(altered(traced(run), float8=found), run)
    assert not evidence.verdict
    assert said in evidence.observed


def test_the_rest_of_the_products_must_be_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    run = run_with(FP8)
    evidence = proof_of(run, traced(run))
    assert not evidence.verdict
    assert "24 of 27 other products in bfloat16" in evidence.observed  # the head is wide


def test_compiled_it_is_not_predicted() -> None:
    with pytest.raises(Unpredicted, match="compiled float8 layers are not predicted"):
        estimate(run_with(FP8, Spec(name="compile")), CPU)


def test_a_processor_with_amx_multiplies_as_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch hands products to oneDNN there, where they take some hundred times as long or fail."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    before = losses(run_with(FP8))
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    assert losses(run_with(FP8)) == before
    assert float8_products._avoid_onednn.cache_info().currsize == 1
