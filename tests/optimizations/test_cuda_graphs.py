"""Graphs of a GPU's work: what is refused and why, what they keep, and that a step which was launched is no proof.

That a replayed step is the launched one to the bit is in `tests/step/test_graphs.py`, and on a GPU in `tests/gpu`.
"""

from typing import Any

import pytest
import torch

from assay.config import Run, Spec
from assay.estimator import Estimate, estimate
from assay.hardware import Accelerator, Machine, Rates
from assay.instruments.step_trace import StepTracer
from assay.optimizations import Conflict, Unavailable, check, resolve
from assay.records.trace import Trace
from assay.step.graphs import StepGraphs
from assay.training.build import baseline
from assay.training.loop import train_step
from support import graphs as recording
from support.random_data import RandomData
from support.runs import SHAPE, run_with, specs_of
from support.steps import build_step, traced
from support.traces import altered

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
RATES = Rates(
    device="cuda",
    matmul_flops={"float32": 1e15},
    bandwidth_bytes=1e13,
    launch_seconds=1e-5,
    backward_launch_seconds=1e-5,
    threads=1,
    torch="any",
)
CUDA = CPU.model_copy(update={"accelerators": (Accelerator(name="any", memory_bytes=2**36),), "rates": {"cuda": RATES}})
GRAPHS = Spec(name="cuda_graphs")


def on_cuda(*specs: Spec, **model: Any) -> Run:
    return run_with(*specs, model=SHAPE.model_copy(update=model)).model_copy(update={"device": "cuda"})


def predicted(*names: str) -> Estimate:
    return estimate(on_cuda(*specs_of(names)), CUDA)


def test_on_a_cpu_there_is_nothing_to_replay() -> None:
    with pytest.raises(Unavailable, match="use a CUDA device"):
        check(run_with(GRAPHS), CPU)
    check(on_cuda(GRAPHS), CUDA)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ("fp16_mixed", "a factor that changes between steps"),
        ("fp16_full", "a factor that changes between steps"),
        ("activation_offload", "pinned memory that it allocates during the step"),
        ("optimizer_in_backward", "a learning rate that changes between steps"),
    ],
)
def test_a_technique_that_cannot_be_recorded_is_refused(other: str, reason: str) -> None:
    with pytest.raises(Conflict, match=f"{other} .*{reason}; leave out cuda_graphs"):
        check(on_cuda(*specs_of([other, "cuda_graphs"])), CUDA)


@pytest.mark.parametrize("other", ["compile", "fp8"])
def test_a_technique_that_was_not_proven_inside_a_recording_is_refused(other: str) -> None:
    with pytest.raises(Conflict, match="not proven inside a capture"):
        check(on_cuda(*specs_of([other, "cuda_graphs"])), CUDA)


def test_noise_that_is_drawn_twice_ranks_and_mixtures_are_refused() -> None:
    again = specs_of(["activation_checkpointing", "cuda_graphs"])
    check(on_cuda(*again), CUDA)
    check(on_cuda(GRAPHS, dropout=0.1), CUDA)
    with pytest.raises(Conflict, match=r"set model\.dropout=0"):
        check(on_cuda(*again, dropout=0.1), CUDA)
    with pytest.raises(Conflict, match="the host reads where a mixture's router sends tokens"):
        check(on_cuda(GRAPHS, n_expert=4, n_expert_active=1), CUDA)
    with pytest.raises(Conflict, match="one device"):
        resolve(GRAPHS).check(on_cuda(GRAPHS).model_copy(update={"ranks": 2}), CUDA)


@pytest.mark.parametrize("beside", [(), ("gradient_accumulation",), ("fused_adamw",)], ids=len)
def test_memory_of_a_step_at_its_highest_is_kept_beside_the_update(beside: tuple[str, ...]) -> None:
    plain, graphs = predicted(*beside), predicted(*beside, "cuda_graphs")
    micro_batches = plain.cost.micro_batches
    inputs = 2 * 8 * (4 // micro_batches) * SHAPE.context_length
    before_update = max(one.nbytes for one in plain.timeline.instants if one.phase != "update")
    norm = sum(one.kept_bytes for one in plain.cost.norms)  # the update may begin after it
    scratch = max(one.nbytes for one in plain.cost.update)
    assert graphs.timeline.peak.nbytes - before_update - inputs - scratch in (0, norm)
    assert graphs.timeline.peak.nbytes >= plain.timeline.peak.nbytes + inputs


def test_only_the_update_is_launched_kernel_by_kernel() -> None:
    plain, graphs = predicted(), predicted("cuda_graphs")
    assert plain.step_seconds is not None
    assert graphs.step_seconds is not None
    saved = plain.step_seconds - graphs.step_seconds
    operations = sum(any(one.view_of is None for one in operation.outputs) for operation in plain.cost.tape)
    assert saved == pytest.approx((2 * operations - 4) * 1e-5)


def test_applying_only_describes() -> None:
    run = on_cuda(GRAPHS)
    program = resolve(GRAPHS).apply(baseline(run, RandomData(run), torch.device("cpu")), run)  # type: ignore[arg-type]
    assert all(parameter.is_meta for part in program.parts for parameter in part.parameters())
    graphs = program.witness(StepGraphs)
    assert graphs is not None
    assert program.gradients == graphs.gradients


def traced_by_graphs(run: Run) -> Trace:
    step = build_step(run)
    train_step(step, 0)
    with StepTracer(step) as tracer:
        record = train_step(tracer.watch(), 1)
    return tracer.trace(record.loss, record.tokens)


@pytest.mark.parametrize("beside", [(), ("gradient_accumulation", "sdpa_attention")], ids=len)
def test_replays_are_proven_and_kernels_that_were_launched_are_not(
    beside: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    recording.install(monkeypatch)
    run, proof = run_with(*specs_of([*beside, "cuda_graphs"])), resolve(GRAPHS)
    trace = traced_by_graphs(run)
    evidence = proof.verify(trace, run)
    assert evidence.verdict, evidence.observed
    for name in beside:
        assert resolve(Spec(name=name)).verify(trace, run).verdict
    assert not proof.verify(traced(run_with(*specs_of(beside))), run).verdict
    assert not proof.verify(altered(trace, graph_replays=trace.forwards - 1), run).verdict
    assert not proof.verify(altered(trace, captured_contractions=trace.contractions() - 1), run).verdict
