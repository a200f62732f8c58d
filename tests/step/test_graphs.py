"""Replayed steps: the same numbers as launched ones, whatever the micro-batches; seen when they are observed.

A CPU has no graphs, so operators are recorded and replayed by a stand-in; `tests/gpu` does the same on a GPU.
"""

from dataclasses import replace

import pytest
import torch

from assay.config import Run
from assay.cost import Cost, replay
from assay.cost import baseline as ledger_of
from assay.errors import UsageError
from assay.hardware import Machine
from assay.instruments.dissection import anatomy
from assay.instruments.step_trace import StepTracer
from assay.optimizations import optimizations_of
from assay.optimizations.cuda_graphs import replay_ledger as of_graphs
from assay.records.trace import Trace
from assay.step.graphs import StepGraphs
from assay.step.program import Step
from assay.training.divergence import first_not_finite
from assay.training.loop import train_step
from assay.training.probes import ActivationNorms
from assay.training.step_record import StepRecord
from support import graphs as recording
from support.runs import run_with, specs_of
from support.steps import build_step, micro_batches

STEPS = 4
STACKS = [
    (),
    ("gradient_accumulation",),
    ("sdpa_attention", "bf16_mixed", "fused_adamw"),
    ("activation_checkpointing", "gradient_accumulation"),
]


@pytest.fixture(autouse=True)
def _recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    recording.install(monkeypatch)


def replayed(run: Run) -> tuple[Step, StepGraphs]:
    step = build_step(run)
    graphs = StepGraphs(step.program.gradients)
    return replace(step, program=replace(step.program, gradients=graphs.gradients, witnesses=(graphs,))), graphs


def replayed_ledger(run: Run) -> Cost:
    cost = ledger_of(run)
    for one in optimizations_of(run):
        cost = one.predict(cost, run, Machine(processor="any", cores=1, memory_bytes=2**34))
    return of_graphs(cost)


def clipped(*names: str) -> Run:
    run = run_with(*specs_of(names))
    return run.model_copy(update={"training": run.training.model_copy(update={"gradient_clip": 0.05})})


def told(record: StepRecord) -> tuple[object, ...]:
    return record.loss, record.log_gradient_norm, record.activation_norms, record.learning_rate


def traced(step: Step, index: int) -> Trace:
    with StepTracer(step) as tracer:
        record = train_step(tracer.watch(), index)
    return tracer.trace(record.loss, record.tokens)


@pytest.mark.parametrize("names", STACKS, ids=lambda names: "+".join(names) or "baseline")
def test_every_step_is_that_of_launched_kernels_to_the_bit(names: tuple[str, ...]) -> None:
    plain, (step, graphs) = build_step(clipped(*names)), replayed(clipped(*names))
    watching, watched = ActivationNorms(plain), ActivationNorms(step)
    for index in range(STEPS):
        assert told(train_step(step, index, watched)) == told(train_step(plain, index, watching))
    for (name, weight), (_, expected) in zip(step.named_parameters(), plain.named_parameters(), strict=True):
        assert torch.equal(weight, expected), name
    assert graphs.replays == (STEPS - 1) * step.program.micro_batches


@pytest.mark.parametrize("names", [(), ("gradient_accumulation",)], ids=len)
def test_an_observed_step_is_recorded_anew_and_later_ones_replay_what_was_seen(names: tuple[str, ...]) -> None:
    run = clipped(*names)
    plain, (step, _) = build_step(run), replayed(run)
    for index in range(2):
        assert train_step(step, index).loss == train_step(plain, index).loss
    expected, seen = traced(plain, 2), traced(step, 2)
    assert seen.loss == expected.loss
    assert seen.memory.saved_total_bytes == replay(replayed_ledger(run)).saved_bytes
    assert (seen.forwards, seen.graphs.graph_replays) == (expected.forwards, expected.forwards)
    for phase in ("forward", "backward"):
        assert seen.contractions(phase) == expected.contractions(phase) > 0  # type: ignore[arg-type]
    assert seen.graphs.captured_contractions == seen.contractions()
    assert (expected.graphs.graph_replays, expected.graphs.captured_contractions) == (0, 0)
    assert train_step(step, 3).loss == train_step(plain, 3).loss


def test_a_batch_of_another_shape_is_recorded_anew_and_never_spread_over_the_first() -> None:
    plain, (step, _) = build_step(run_with()), replayed(run_with())
    for index in range(2):
        train_step(step, index)
        train_step(plain, index)
    ((ids, targets),) = micro_batches(plain)
    smaller = (ids[:1], targets[:1])
    assert step.program.gradients(step, [smaller], 16) == plain.program.gradients(plain, [smaller], 16)
    with pytest.raises(ValueError, match="must have the same shape"):
        step.program.gradients(step, [(ids, targets), smaller], 80)


def test_values_that_are_not_finite_are_named_by_launching_the_step_again() -> None:
    step, graphs = replayed(run_with())
    for index in range(2):
        train_step(step, index)
    with torch.no_grad():
        dict(step.named_parameters())["blocks.1.mlp_norm.weight"].fill_(3.4e38)
    assert not train_step(step, 2).finite
    before = graphs.replays
    assert first_not_finite(step, micro_batches(step)) == "the output of blocks.1.mlp_norm"
    assert graphs.replays == before


def test_nothing_is_left_to_take_apart() -> None:
    step, _ = replayed(run_with())
    with pytest.raises(UsageError, match="no single operators to time"):
        anatomy(step, train_step)
