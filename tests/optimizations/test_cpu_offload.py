"""The update on the host, and the weights: refused where there is no other place; the same step; bytes of a device."""

from dataclasses import replace

import pytest
import torch

from assay.config import Run, Spec
from assay.cost import Timeline, replay
from assay.cost import baseline as ledger_of
from assay.cost.operation import Gradient
from assay.estimator import estimate
from assay.hardware import Accelerator, Machine
from assay.instruments.memory.memory_pass import live_tensor_bytes
from assay.instruments.memory.tensor_peak import tensor_peak
from assay.instruments.step_trace import StepTracer
from assay.optimizations import Conflict, Unavailable, check, optimizations_of, resolve
from assay.step.program import Step
from assay.step.stand_in_update import update_on_host
from assay.training.build import baseline, build
from assay.training.checkpoints.state import load_optimizer, optimizer_tensors
from assay.training.loop import train_step
from support.random_data import RandomData
from support.runs import SHAPE, run_with, specs_of, without
from support.steps import build_step, losses, traced
from support.traces import altered

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
CUDA = CPU.model_copy(update={"accelerators": (Accelerator(name="any", memory_bytes=2**36),)})
OFFLOADED = Spec(name="cpu_offload")
WEIGHTS = resolve(Spec(name="cpu_offload", fields={"parameters": True})).spec()


def on_cuda(*specs: Spec) -> Run:
    return run_with(*specs).model_copy(update={"device": "cuda"})


def moved(run: Run) -> Step:
    """What a GPU's step would be, on this processor: copies of everything, and no waiting."""
    return build(update_on_host(baseline(run, RandomData(run), torch.device("cpu"))))  # type: ignore[arg-type]


def weights(step: Step) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in step.named_parameters()}


def test_the_update_of_copies_is_that_of_the_weights_themselves() -> None:
    plain, away = build_step(run_with()), moved(run_with())
    for index in range(3):
        assert train_step(away, index).loss == train_step(plain, index).loss
    assert all(torch.equal(value, weights(away)[name]) for name, value in weights(plain).items())
    assert all(
        copy is not weight for (_, copy), (_, weight) in zip(away.optimized, away.named_parameters(), strict=True)
    )


def test_weights_that_were_loaded_are_those_that_are_updated() -> None:
    plain, away = build_step(run_with()), moved(run_with())
    for index in range(2):
        train_step(plain, index)
    load_optimizer(away, optimizer_tensors(plain))
    with torch.no_grad():
        for (_, mine), (_, other) in zip(away.named_parameters(), plain.named_parameters(), strict=True):
            mine.copy_(other)
    assert train_step(away, 2).loss == train_step(plain, 2).loss
    assert all(torch.equal(value, weights(away)[name]) for name, value in weights(plain).items())


def test_a_device_is_predicted_to_keep_no_state() -> None:
    plain, away = (estimate(on_cuda(*specs), CUDA) for specs in ((), (OFFLOADED,)))
    assert away.to_dict()["optimizer_state_bytes"] == 0
    assert away.to_dict()["parameter_bytes"] == plain.to_dict()["parameter_bytes"]
    assert away.timeline.peak.nbytes <= plain.timeline.peak.nbytes - plain.to_dict()["optimizer_state_bytes"]


@pytest.mark.parametrize(("share", "verdict"), [(1, True), (2, False)])
def test_the_proof_wants_all_of_the_state_away(share: int, verdict: bool) -> None:
    trace = traced(run_with())
    away = altered(trace, offloaded_state_bytes=trace.memory.optimizer_state_bytes // share)
    assert resolve(OFFLOADED).verify(away, run_with()).verdict is verdict
    assert not resolve(OFFLOADED).verify(trace, run_with()).verdict


def test_it_is_refused_where_there_is_nothing_to_move_and_over_ranks() -> None:
    with pytest.raises(Unavailable, match="moves nothing on a CPU"):
        check(run_with(OFFLOADED), CPU)
    resolve(OFFLOADED).check(on_cuda(OFFLOADED), CUDA)
    with pytest.raises(Conflict, match="fully_sharded:offload=true"):
        resolve(OFFLOADED).check(replace_ranks(on_cuda(OFFLOADED), 2), CUDA)


def replace_ranks(run: Run, ranks: int) -> Run:
    return run.model_copy(update={"ranks": ranks})


def fetched(run: Run) -> Step:
    """What a GPU's step would be, on this processor: weights are copied for every module, and let go."""
    program = baseline(run, RandomData(run), torch.device("cpu"))  # type: ignore[arg-type]
    for one in optimizations_of(run):
        program = one.apply(program, run)
    return build(program)


def on_this_processor(run: Run) -> Timeline:
    """The ledger of that step, where gradients that came down and the rest of the host's memory count, too."""
    cost = ledger_of(run)
    for one in optimizations_of(run):
        plain, cost = cost, one.predict(cost, run, CPU)
    tape = tuple(
        replace(one, gradients=(Gradient.ALIAS,))
        if one.backward == "ToCopyBackward" and one.inputs[0] in plain.pieces
        else one
        for one in cost.tape
    )
    return replay(replace(cost, tape=tape, pieces=plain.pieces, optimizer=plain.optimizer))


BESIDE = [
    (),
    ("activation_checkpointing",),
    ("gradient_accumulation", "sdpa_attention"),
    ("chunked_cross_entropy", "bf16_mixed"),
]


@pytest.mark.parametrize("beside", BESIDE, ids=lambda names: "+".join(names) or "alone")
def test_weights_that_come_for_each_module_train_alike_and_are_counted(beside: tuple[str, ...]) -> None:
    run = run_with(*specs_of(beside), WEIGHTS)
    step = fetched(run)
    live = live_tensor_bytes(torch.device("cpu")) - sum(one.nbytes for _, one in step.named_parameters())
    assert [train_step(step, index).loss for index in range(2)] == losses(without(run, beside), 2)
    with StepTracer(step) as tracer:
        record = train_step(tracer.watch(), 2)
    trace, expected = tracer.trace(record.loss, record.tokens), on_this_processor(run)
    assert trace.memory.saved_total_bytes == expected.saved_bytes
    before = live_tensor_bytes(torch.device("cpu")) - live
    peak = before + tensor_peak(lambda: train_step(step, 3) and None, "cpu").above_start_bytes
    assert expected.peak.nbytes == pytest.approx(peak, rel=0.05 if "bf16_mixed" in beside else 0.005)


def test_a_device_is_predicted_to_hold_a_module_at_a_time() -> None:
    plain, away = (estimate(on_cuda(*specs), CUDA) for specs in ((), (WEIGHTS,)))
    held = away.to_dict()
    assert held["parameter_bytes"] == held["optimizer_state_bytes"] == held["gradient_bytes"] == 0
    assert plain.timeline.saved_bytes == away.timeline.saved_bytes
    state = plain.to_dict()["parameter_bytes"] + plain.to_dict()["optimizer_state_bytes"]
    block = sum(one.nbytes for name, one in plain.cost.parameters.items() if name.startswith("blocks.0."))
    assert 0 < away.timeline.peak.nbytes - (plain.timeline.peak.nbytes - state) < block


def test_weights_that_stay_on_the_device_are_no_proof() -> None:
    trace, proof = traced(run_with()), resolve(WEIGHTS)
    away = {
        "offloaded_state_bytes": trace.memory.optimizer_state_bytes,
        "offloaded_bytes": trace.memory.parameter_bytes,
    }
    assert proof.verify(altered(trace, **away), run_with()).verdict
    for name in away:
        kept = {**away, name: away[name] - 4}
        assert not proof.verify(altered(trace, **kept), run_with()).verdict


def test_weights_are_the_parameters_own_again_after_each_module() -> None:
    step = fetched(run_with(WEIGHTS))
    before = step.named_parameters()
    train_step(step, 0)
    (part,) = step.parts
    assert all(one is two for (_, one), (_, two) in zip(before, part.named_parameters(), strict=True))


@pytest.mark.parametrize("other", ["activation_offload", "compile", "cuda_graphs", "fp8", "selective_checkpointing"])
def test_a_program_that_cannot_have_weights_that_come_and_go_is_refused(other: str) -> None:
    run = on_cuda(Spec(name=other), WEIGHTS)
    with pytest.raises(Conflict, match=f"{other} .*leave it out, or cpu_offload:parameters=true"):
        check(run, CUDA)
    assert not resolve(OFFLOADED).excludes(run)
    mixture = SHAPE.model_copy(update={"n_expert": 4, "n_expert_active": 1})
    with pytest.raises(Conflict, match="dense models only"):
        resolve(WEIGHTS).check(run.model_copy(update={"model": mixture}), CUDA)
