"""The update on the host: refused where there is no other place; the same update; nothing of it on the device."""

import pytest
import torch

from assay.config import Run, Spec
from assay.estimate import estimate
from assay.hardware import Accelerator, Machine
from assay.optimizations import Conflict, Unavailable, check, resolve
from assay.step.on_host import update_on_host
from assay.step.program import Step
from assay.training.build import baseline, build
from assay.training.loop import train_step
from assay.training.state import load_optimizer, optimizer_tensors
from estimate.built import RandomData, build_step
from optimizations.laboratory import run_with, traced

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
CUDA = CPU.model_copy(update={"accelerators": (Accelerator(name="any", memory_bytes=2**36),)})
OFFLOADED = Spec(name="cpu_offload")


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


def test_what_was_loaded_into_the_weights_is_what_is_updated() -> None:
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
    away = trace.model_copy(update={"offloaded_state_bytes": trace.optimizer_state_bytes // share})
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
