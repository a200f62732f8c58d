"""Activations on the host: refused where they lie there already; the same gradients; nothing kept on the device."""

from dataclasses import replace

import pytest

from assay.config import Run, Spec
from assay.cost import Cost, kernels
from assay.cost import baseline as ledger_of
from assay.estimator import estimate
from assay.hardware import Accelerator, Machine
from assay.optimizations import Conflict, Unavailable, check, resolve
from assay.optimizations.activation_offload import saved_on_host
from assay.step.device_queue import Offload
from assay.training.loop import train_step
from assay.worker.proof.ending import traced_step
from support.runs import run_with, specs_of
from support.steps import build_step, losses, traced
from support.traces import altered

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
CUDA = CPU.model_copy(update={"accelerators": (Accelerator(name="any", memory_bytes=2**36),)})
OFFLOADED = Spec(name="activation_offload")


def on_cuda(*specs: Spec) -> Run:
    return run_with(*specs).model_copy(update={"device": "cuda"})


@pytest.mark.parametrize("beside", [(), ("bf16_mixed", "sdpa_attention"), ("gradient_accumulation",)], ids=len)
def test_saved_copies_give_the_same_losses(beside: tuple[str, ...]) -> None:
    run = run_with(*specs_of(beside))
    step = build_step(run)
    offload = Offload(step.parts)
    away = replace(step, program=replace(step.program, step_contexts=(offload,), witnesses=(offload,)))
    assert [train_step(away, index).loss for index in range(3)] == losses(run)


def test_a_device_is_predicted_to_keep_nothing_and_to_have_each_nodes_own_again() -> None:
    plain, away = (estimate(on_cuda(*specs), CUDA) for specs in ((), (OFFLOADED,)))
    assert away.timeline.saved_bytes == 0 < plain.timeline.saved_bytes
    assert away.timeline.peak.nbytes < plain.timeline.peak.nbytes
    before: Cost = ledger_of(on_cuda(), kernels.CUDA)
    after = saved_on_host(before)
    for there, here in zip(before.tape, after.tape, strict=True):
        assert set(here.saves) <= set(there.saves)
        back = len(there.saves) - len(here.saves)
        assert len(here.scratch.backward) == len(there.scratch.backward) + back


def test_the_proof_wants_all_of_it_away() -> None:
    trace, proof = traced(run_with()), resolve(OFFLOADED)
    assert not proof.verify(trace, run_with()).verdict
    none_kept = altered(trace, saved_bytes={})
    assert not proof.verify(none_kept, run_with()).verdict
    assert proof.verify(altered(none_kept, offloaded_saved_bytes=1), run_with()).verdict


def test_an_instrument_sees_where_each_tensor_goes() -> None:
    step = build_step(run_with())
    offload = Offload(step.parts)
    away = replace(step, program=replace(step.program, step_contexts=(offload,), witnesses=(offload,)))
    plain, found = traced(run_with()).memory, traced_step(away, 0, None)[1].memory
    assert found.offloaded_saved_bytes >= plain.saved_total_bytes  # a tensor that two operations save moves twice
    assert (found.saved_total_bytes, found.unmoved_saved_bytes, found.moved_weight_bytes) == (0, 0, 0)


@pytest.mark.parametrize("field", ["unmoved_saved_bytes", "moved_weight_bytes"])
def test_the_proof_wants_nothing_else_to_stay_or_to_move(field: str) -> None:
    trace, proof = altered(traced(run_with()), saved_bytes={}, offloaded_saved_bytes=1), resolve(OFFLOADED)
    assert proof.verify(trace, run_with()).verdict
    assert not proof.verify(altered(trace, **{field: 1}), run_with()).verdict


def test_it_is_refused_where_there_is_nothing_to_move_and_where_it_is_not_proven() -> None:
    with pytest.raises(Unavailable, match="moves nothing on a CPU"):
        check(run_with(OFFLOADED), CPU)
    resolve(OFFLOADED).check(on_cuda(OFFLOADED), CUDA)
    with pytest.raises(Conflict, match="compiled code chooses which tensors it saves"):
        check(on_cuda(OFFLOADED, Spec(name="compile")), CUDA)
    with pytest.raises(Conflict, match="with several ranks"):
        resolve(OFFLOADED).check(on_cuda(OFFLOADED).model_copy(update={"ranks": 2}), CUDA)
