"""Everything in bfloat16: half of every byte, and each half missing is caught."""

from pathlib import Path

import pytest
import torch

from assay.config import ModelConfig, Run, Spec
from assay.hardware import Accelerator, Machine
from assay.model.hf import to_hf
from assay.model.weights import parameter_shapes, read_weights
from assay.optimizations import Conflict, Unavailable, resolve
from assay.training.checkpoints import checkpoint
from assay.training.loop import train_step
from assay.training.step_record import Position
from support.runs import SHAPE, run_with
from support.steps import build_step, traced
from support.traces import altered

FULL = Spec(name="bf16_full")
CPU = Machine(processor="any", cores=2, memory_bytes=2**34)


def verdict(**changes: object) -> bool:
    run = run_with(FULL)
    return resolve(FULL).verify(altered(traced(run), **changes), run).verdict


def test_weights_that_stayed_in_float32_do_not_pass() -> None:
    whole = traced(run_with(FULL))
    assert verdict()
    assert not verdict(gradient_bytes=2 * whole.memory.gradient_bytes)
    assert not verdict(parameters=tuple(one.model_copy(update={"dtype": "float32"}) for one in whole.parameters))
    assert not verdict(whole_state_bytes={"float32": 2 * whole.memory.whole_optimizer_state_bytes})


def test_autocast_over_float32_weights_does_not_pass() -> None:
    evidence = resolve(FULL).verify(traced(run_with(Spec(name="bf16_mixed"))), run_with(FULL))
    assert not evidence.verdict
    assert evidence.observed.startswith("75 of 75 matmuls and 0 of 52 weights in bfloat16; 213376 bytes of weights")


def test_the_loss_is_summed_in_float32() -> None:
    lossy = [one for one in traced(run_with(FULL)).operations if "nll_loss" in one.name or "log_softmax" in one.name]
    assert {one.dtype for one in lossy} == {"float32"}


def test_a_small_update_of_a_large_weight_is_lost() -> None:
    """The caveat on the card, so that nobody takes it for a fault elsewhere."""

    def moved(run: Run) -> bool:
        step = build_step(run)
        train_step(step, 0)
        gain = dict(step.named_parameters())["head.norm.weight"]
        return bool((gain != 1).any())

    assert moved(run_with())
    assert not moved(run_with(FULL))


@pytest.mark.parametrize(("name", "dtype"), [("bf16_full", torch.bfloat16), ("fp16_full", torch.float16)])
def test_a_resumed_run_is_bit_equal_and_its_weights_lie_in_16_bits(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    run = run_with(Spec(name=name))
    whole = build_step(run)
    for index in range(2):
        train_step(whole, index)
    place = checkpoint.save(tmp_path, whole, Position(step=2), "any")
    again = build_step(run)
    checkpoint.resume(tmp_path, again)
    losses = [[train_step(step, index).loss for index in (2, 3)] for step in (whole, again)]
    assert losses[0] == losses[1]
    assert {one.dtype for one in read_weights(place, SHAPE).values()} == {dtype}


def test_an_export_keeps_the_dtype_in_the_biases_that_it_adds_too() -> None:
    config = ModelConfig(**{**SHAPE.model_dump(), "bias": False})
    state = {name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in parameter_shapes(config).items()}
    assert {one.dtype for one in to_hf(state, config).values()} == {torch.bfloat16}


def test_a_router_is_refused() -> None:
    model = ModelConfig(**{**SHAPE.model_dump(), "n_expert": 4})
    with pytest.raises(Conflict, match="must stay in float32"):
        resolve(FULL).check(run_with(FULL, model=model), CPU)


def test_a_gpu_before_ampere_is_refused() -> None:
    old = Accelerator(name="Tesla T4", memory_bytes=2**34, compute_capability=(7, 5))
    machine = CPU.model_copy(update={"accelerators": (old,)})
    with pytest.raises(Unavailable, match="Tesla T4 is older"):
        resolve(FULL).check(run_with(FULL).model_copy(update={"device": "cuda"}), machine)
