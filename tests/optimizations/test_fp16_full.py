"""Everything in float16: an update that does not divide by zero, and each half missing is caught."""

import math

import pytest
import torch

from assay.config import ModelConfig, Spec
from assay.hardware import Machine
from assay.optimizations import Conflict, resolve
from assay.training.loop import train_step
from support.runs import SHAPE, run_with
from support.steps import build_step, losses, traced
from support.traces import altered

FULL = Spec(name="fp16_full")
CPU = Machine(processor="any", cores=2, memory_bytes=2**34)


def test_products_that_stayed_in_float32_or_unscaled_do_not_pass() -> None:
    run = run_with(FULL)
    trace = traced(run)
    bare = tuple(one for one in trace.operations if "unscale" not in one.name)
    changes: list[dict[str, object]] = [
        {"operations": bare},
        {"gradient_bytes": 2 * trace.memory.gradient_bytes},
        {"parameters": tuple(one.model_copy(update={"dtype": "float32"}) for one in trace.parameters)},
        {"whole_state_bytes": {"float32": 2 * trace.memory.whole_optimizer_state_bytes}},
    ]
    assert resolve(FULL).verify(trace, run).verdict
    for change in changes:
        assert not resolve(FULL).verify(altered(trace, **change), run).verdict


def test_mixed_precision_does_not_pass() -> None:
    assert not resolve(FULL).verify(traced(run_with(Spec(name="fp16_mixed"))), run_with(FULL)).verdict


def test_it_trains_as_float32_does_for_some_steps() -> None:
    assert losses(run_with(FULL), 12) == pytest.approx(losses(run_with(), 12), rel=1e-3)


def test_torchs_own_optimizer_would_divide_by_zero() -> None:
    """Why it brings its own: the reason on the card."""
    weight = torch.nn.Parameter(torch.ones(4, dtype=torch.float16))
    optimizer = torch.optim.AdamW([weight], lr=1e-3, foreach=False)
    weight.grad = torch.full_like(weight, 1e-4)
    optimizer.step()
    assert not bool(torch.isfinite(weight).all())


def test_every_weight_stays_finite_and_in_16_bits() -> None:
    step = build_step(run_with(FULL))
    records = [train_step(step, index) for index in range(3)]
    assert not any(record.skipped for record in records)
    assert all(math.isfinite(record.loss) for record in records)
    for _, parameter in step.named_parameters():
        assert parameter.dtype == torch.float16
        assert bool(torch.isfinite(parameter).all())


def test_a_router_is_refused() -> None:
    model = ModelConfig(**{**SHAPE.model_dump(), "n_expert": 4})
    with pytest.raises(Conflict, match="must stay in float32"):
        resolve(FULL).check(run_with(FULL, model=model), CPU)
