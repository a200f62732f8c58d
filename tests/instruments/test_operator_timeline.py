"""Operators of a step in their order: those of the anatomy, one after the other, with the ledger's peak of memory."""

from collections import Counter

import pytest
import torch

from assay.config import Spec
from assay.instruments.dissection import Dissector
from assay.instruments.memory.memory_pass import live_tensors
from assay.instruments.memory.storage_ledger import StorageLedger
from assay.instruments.operator_timeline import operators
from assay.records.anatomy import Anatomy
from assay.report.anatomy import trace_of
from assay.step.program import Step
from assay.training.loop import train_step
from support.runs import run_with
from support.steps import build_step
from support.traces import nest

STACKS = {
    "baseline": (),
    "sdpa and accumulation": (Spec(name="sdpa_attention"), Spec(name="gradient_accumulation")),
    "bf16 and checkpointing": (Spec(name="bf16_mixed"), Spec(name="activation_checkpointing")),
}


def begun(*specs: Spec) -> Step:
    step = build_step(run_with(*specs))
    train_step(step, 0)
    return step


@pytest.mark.parametrize("specs", STACKS.values(), ids=list(STACKS))
def test_operators_are_those_of_the_anatomy_in_their_order(specs: tuple[Spec, ...]) -> None:
    step = begun(*specs)
    found = operators(step, train_step, 1)
    with Dissector(step) as dissector:
        train_step(dissector.watch(), 1)
    counts: Counter[tuple[str, str, str]] = Counter()
    for one in found:
        counts[one.module, one.phase, one.operation_class] += 1
    assert counts == {(part.module, part.phase, part.operation_class): part.count for part in dissector.parts()}
    ends = [one.begin_seconds + one.seconds for one in found]
    assert found[0].begin_seconds == 0
    assert all(end <= one.begin_seconds for end, one in zip(ends, found[1:], strict=False))


@pytest.mark.parametrize("specs", STACKS.values(), ids=list(STACKS))
def test_the_highest_of_the_bytes_alive_is_the_ledgers_peak(specs: tuple[Spec, ...]) -> None:
    step = begun(*specs)
    with StorageLedger() as ledger:
        ledger.begin(step.parts, {}, live_tensors(torch.device("cpu")))
        train_step(step, 1)
    peak = ledger.peak().nbytes
    assert max(one.alive_bytes or 0 for one in operators(step, train_step, 1)) == peak


def test_a_real_step_is_a_trace_whose_slices_nest() -> None:
    found = operators(begun(*STACKS["bf16 and checkpointing"]), train_step, 1)
    made = trace_of(Anatomy(parts=(), step_seconds=1.0, watched_seconds=1.0, operators=found))
    slices = [one for one in made["traceEvents"] if one["ph"] == "X"]
    assert nest(slices)
    assert {one["name"] for one in slices if one["cat"] == "phase"} == {"forward", "backward", "recompute", "update"}
