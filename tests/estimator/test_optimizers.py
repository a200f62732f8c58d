"""The predicted peak and state of every optimizer, where the update is the highest moment, against what is measured."""

import pytest

from assay.api import configure
from assay.config import Spec
from assay.errors import UsageError
from assay.estimator import estimate
from assay.hardware import Machine
from assay.instruments.memory.storages import distinct_bytes
from assay.instruments.operations import tensors_in
from assay.optimizations import Unavailable, catalogue, check, resolve
from support.runs import run_with
from support.steps import measured_peak, traced

MACHINE = Machine(processor="any", cores=1, memory_bytes=2**34)
OPTIMIZERS = [name for name, kind in catalogue().items() if "optimizer" in kind.claims]
SHAPE = ("model.n_layer=2", "model.n_embd=192", "model.context_length=32", "model.vocab_size=256")
"""Few tokens and wide matrices; in one kernel the update takes nothing, and backward is the highest."""
SHAPES = {
    "adamw_8bit": ("model.position=rotary", "model.n_hidden=192", "model.vocab_size=192"),
    "mup": ("model.tie_embeddings=false",),
}
"""The first is compiled for each shape of a weight: one is square, one is not, and one is small."""
COMPILED = pytest.param("adamw_8bit", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [COMPILED if name == "adamw_8bit" else name for name in OPTIMIZERS])
def test_the_peak_and_the_state_are_the_measured_ones(name: str) -> None:
    run = configure("demo", [*SHAPE, *SHAPES.get(name, ()), "training.batch_size=2", "device=cpu"], [name])
    try:
        resolve(Spec(name=name)).check(run, MACHINE)
    except Unavailable as reason:
        pytest.skip(str(reason))
    predicted = estimate(run, MACHINE)
    step, measured, instant = measured_peak(run)
    error = predicted.timeline.peak.nbytes / measured - 1
    print(f"{name}: {predicted.timeline.peak.nbytes} bytes at {predicted.timeline.peak}, {error:+.4%}")
    assert abs(error) <= 0.001
    if name != "fused_adamw":  # two moments of its backward are nearly as high
        assert instant == predicted.timeline.peak.label
    state = distinct_bytes(tensors_in(list(step.optimizer.state.values())))
    assert state == predicted.cost.optimizer_state_bytes


@pytest.mark.usefixtures("updates_as_written")
@pytest.mark.parametrize("narrow", [(), (Spec(name="bf16_full"),)], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["", *OPTIMIZERS])
def test_products_of_an_update_are_those_that_the_trace_counts(name: str, narrow: tuple[Spec, ...]) -> None:
    run = run_with(*((Spec(name=name),) if name else ()), *narrow)
    try:
        check(run, MACHINE)
    except UsageError as reason:
        pytest.skip(str(reason))
    counted: dict[str, int] = {}
    operations = traced(run).operations
    for one in operations:
        if one.flops and one.phase == "update":
            counted[one.dtype] = counted.get(one.dtype, 0) + one.flops
    cost = estimate(run, MACHINE).cost
    assert {one.dtype for one in cost.optimizer.rule.products(cost.updated)} == counted.keys()
    assert sum(one.flops for one in cost.optimizer.rule.products(cost.updated)) == sum(counted.values())
    assert estimate(run, MACHINE).step_flops == sum(one.flops for one in operations)
    assert counted or name not in ("muon", "adafactor")
