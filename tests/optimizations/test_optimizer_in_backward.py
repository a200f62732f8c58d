"""The update inside backward: bit-equal to the plain one, one gradient at a time, refused where all are needed."""

import math
from collections.abc import Sequence

import pytest
import torch

from assay.api import configure
from assay.config import Run, Spec
from assay.estimator import estimate
from assay.hardware import Machine
from assay.instruments.memory.memory_pass import live_tensor_bytes, memory_pass
from assay.instruments.step_trace import StepTracer
from assay.optimizations import Conflict, check, resolve
from assay.records.evidence import Evidence
from assay.step.program import Step
from assay.training.checkpoints.state import load_optimizer, optimizer_tensors
from assay.training.loop import train_step
from support.runs import SHAPE, run_with
from support.steps import build_step, traced

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
IN_BACKWARD = Spec(name="optimizer_in_backward")
VARIANTS = (
    SHAPE,
    SHAPE.model_copy(update={"tie_embeddings": False, "position": "rotary", "norm": "rms", "n_kv_head": 1}),
)


def weights(step: Step) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in step.named_parameters()}


@pytest.mark.parametrize("model", VARIANTS, ids=["gpt2", "variants"])
@pytest.mark.parametrize(
    "stack",
    [(), (Spec(name="muon"),), (Spec(name="activation_checkpointing"), Spec(name="bf16_mixed"))],
    ids=lambda stack: "+".join(spec.name for spec in stack) or "plain",
)
def test_weights_and_norms_are_bit_equal_to_the_plain_update(model: object, stack: Sequence[Spec]) -> None:
    plain, early = (build_step(run_with(*specs, model=model)) for specs in (stack, (*stack, IN_BACKWARD)))  # type: ignore[arg-type]
    for index in range(3):
        there, here = train_step(plain, index), train_step(early, index)
        assert (here.loss, here.log_gradient_norm) == (there.loss, there.log_gradient_norm)
    assert all(torch.equal(value, weights(early)[name]) for name, value in weights(plain).items())


def test_state_goes_to_rest_and_back_by_name() -> None:
    plain, early, resumed = (build_step(run_with(*specs)) for specs in ((), (IN_BACKWARD,), (IN_BACKWARD,)))
    for index in range(2):
        train_step(plain, index), train_step(early, index)
    kept, expected = optimizer_tensors(early), optimizer_tensors(plain)
    assert kept.keys() == expected.keys()
    assert all(torch.equal(kept[name], value) for name, value in expected.items())
    load_optimizer(resumed, kept)
    with torch.no_grad():
        for (_, mine), (_, other) in zip(resumed.named_parameters(), early.named_parameters(), strict=True):
            mine.copy_(other)
    assert train_step(resumed, 2).loss == train_step(early, 2).loss
    assert all(torch.equal(value, weights(resumed)[name]) for name, value in weights(early).items())


def evidence_of(run: Run, step: Step) -> Evidence:
    train_step(step, 0)
    with StepTracer(step) as tracer:
        record = train_step(tracer.watch(), 1)
    return resolve(IN_BACKWARD).verify(tracer.trace(record.loss, record.tokens), run)


def test_the_proof_fails_where_gradients_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_with(IN_BACKWARD)
    step = build_step(run)
    for _, parameter in step.named_parameters():
        # What the hook frees comes back, as where someone else holds it.
        parameter.register_post_accumulate_grad_hook(lambda one: setattr(one, "grad", torch.zeros_like(one)))
    assert not evidence_of(run, step).verdict


def test_the_proof_fails_where_an_update_is_missing() -> None:
    run = run_with(IN_BACKWARD)
    step = build_step(run)
    step.parts[0].get_parameter("head.norm.weight").requires_grad_(False)
    found = evidence_of(run, step)
    assert found.observed.startswith(f"{len(weights(step)) - 1} of {len(weights(step))} parameters updated")
    assert not found.verdict


def test_updates_inside_backward_are_called_update() -> None:
    plain, early = traced(run_with()), traced(run_with(IN_BACKWARD))
    assert early.count("addcdiv", phase="update") == plain.count("addcdiv", phase="update") == len(plain.parameters)
    assert early.count("addcdiv", phase="backward") == 0
    assert plain.memory.gradients_together_bytes == plain.memory.gradient_bytes == plain.memory.parameter_bytes


def test_gradients_are_predicted_to_be_gone() -> None:
    early = estimate(run_with(IN_BACKWARD), CPU)
    assert early.gradient_bytes == traced(run_with(IN_BACKWARD)).memory.gradient_bytes == 0
    assert early.timeline.saved_bytes == estimate(run_with(), CPU).timeline.saved_bytes


WEIGHTS = "model.n_head=4 model.n_embd=256 model.context_length=16 training.batch_size=2"
"""A shape whose peak lies in the update, where it is the plain one's."""


@pytest.mark.parametrize(
    ("shape", "beside"), [("", []), (WEIGHTS, []), (WEIGHTS, ["activation_checkpointing"])], ids=str
)
def test_the_peak_and_its_instant_are_the_measured_ones(shape: str, beside: list[str]) -> None:
    settings = ["model.vocab_size=256", "device=cpu", "training.gradient_clip=0", *shape.split()]
    run = configure("demo", settings, ["+".join((*beside, "optimizer_in_backward"))])
    predicted = estimate(run, CPU).timeline.peak
    device = torch.device("cpu")
    step = build_step(run)
    before = live_tensor_bytes(device) - sum(parameter.nbytes for _, parameter in step.named_parameters())
    for index in range(2):
        train_step(step, index)
    measured = memory_pass(device, lambda: (train_step(step, 2), None)[1], live_tensor_bytes(device) - before)
    print(f"predicted {predicted.nbytes} ({predicted}), measured {measured.tensors_peak_bytes}")
    assert predicted.nbytes == pytest.approx(measured.tensors_peak_bytes, rel=0.005)
    assert measured.tensors_peak_instant == predicted.label


def test_a_step_that_is_not_finite_is_divergence_and_no_skipped_update() -> None:
    step = build_step(run_with(IN_BACKWARD))
    with torch.no_grad():
        step.parts[0].get_parameter("head.norm.weight").fill_(math.nan)
    record = train_step(step, 0)
    assert (record.finite, record.skipped) == (False, False)


@pytest.mark.parametrize("other", ["gradient_accumulation", "pipeline_parallel", "zero_optimizer"])
def test_a_technique_that_needs_all_gradients_is_refused(other: str) -> None:
    run = run_with(IN_BACKWARD, Spec(name=other)) if other == "gradient_accumulation" else over_two(other)
    with pytest.raises(Conflict, match="both replace the step's"):
        check(run, CPU)


def test_other_ranks_and_clipping_are_refused_with_the_reason() -> None:
    with pytest.raises(Conflict, match="before gradients are summed over ranks"):
        check(over_two("data_parallel"), CPU)
    run = run_with(IN_BACKWARD)
    clipped = run.model_copy(update={"training": run.training.model_copy(update={"gradient_clip": 1.0})})
    with pytest.raises(Conflict, match=r"set training\.gradient_clip=0"):
        check(clipped, CPU)


def over_two(other: str) -> Run:
    run = run_with().model_copy(update={"ranks": 2})
    return run.model_copy(update={"optimizations": (IN_BACKWARD, Spec(name=other))})
