"""Later steps that do what the traced one did pass; one that has lost work or keeps memory aside is named."""

from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from assay.config import Spec
from assay.instruments.step_trace import StepTracer
from assay.proofs.later_steps import bound_bytes, called_otherwise, differences, kept_aside, left_settings
from assay.records.prediction import Memory
from assay.records.trace import ENDED, Trace
from assay.step.program import Step
from assay.training.loop import read, take_step, train_step
from assay.worker.proof.middle import profiled_calls
from support.runs import run_with
from support.steps import build_step, observed, traced
from support.traces import altered

SDPA = Spec(name="sdpa_attention")


def test_two_traces_of_one_program_agree() -> None:
    run = run_with(SDPA)
    assert differences(traced(run), traced(run)) == ""


def test_a_kernel_that_is_no_longer_called_is_named() -> None:
    found = differences(traced(run_with(SDPA)), traced(run_with()))
    assert "aten._scaled_dot_product_flash_attention_for_cpu of float32 in forward 4 → 0" in found
    assert " more" in found


def test_an_update_that_writes_less_is_named() -> None:
    trace = traced(run_with())
    first, *others = trace.optimizer.updates
    less = altered(trace, updates=(first.model_copy(update={"written": {}}), *others))
    found = differences(trace, less)
    assert found.startswith("elements of embedding.token.weight written by aten.mul_.Tensor 1952 → 0")


@pytest.mark.parametrize(("prepared", "found"), [(ENDED, ""), ("a loader", "sequences made by a loader 8 → 7")])
def test_rows_in_which_a_document_ends_are_those_of_a_batch(prepared: str, found: str) -> None:
    first, last = (altered(traced(run_with()), prepared={prepared: count}) for count in (8, 7))
    assert differences(first, last) == found


def test_compiled_calls_are_named_first() -> None:
    trace = traced(run_with())
    more = altered(trace, graph_replays=1, training_graphs=3)
    assert differences(more, trace) == "graph replays 1 → 0, graphs compiled for training 3 → 0"


def _traced(after: str | None) -> Trace:
    """Trace a second step; the first one leaves `after` as the precision of products."""
    step = build_step(run_with())
    train_step(step, 0)
    if after is not None:
        torch.set_float32_matmul_precision(after)
    with StepTracer(step) as tracer:
        record = train_step(tracer.watch(), 1)
    return tracer.trace(record.loss, record.targets)


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    yield
    torch.set_float32_matmul_precision("highest")


def test_a_plain_step_leaves_nothing() -> None:
    assert left_settings(_traced(None), run_with()) == ""


def test_a_setting_that_stays_is_named() -> None:
    said = left_settings(_traced("high"), run_with())
    assert said.startswith("after the step torch's setting 'precision of float32 products' is high")


def test_a_model_of_ones_own_may_set_what_it_likes() -> None:
    run = run_with()
    own = run.model_copy(update={"model": run.model.model_copy(update={"own": "mine.py:build"})})
    assert left_settings(_traced("high"), own) == ""


STACKS = (
    "fused_adamw",
    "foreach_adamw",
    "sdpa_attention",
    "bf16_mixed",
    "activation_checkpointing",
    "activation_checkpointing:every=2",
    "selective_checkpointing",
    "chunked_cross_entropy",
    "muon",
    "adafactor",
    "gradient_accumulation:micro_batches=2",
    "optimizer_in_backward",
    "sdpa_attention+bf16_mixed+activation_checkpointing",
)


def calls(step: Step) -> dict[str, int]:
    """Calls of the third step."""
    for index in range(2):
        read(step, [take_step(step, index)])
    return profiled_calls(lambda: read(step, [take_step(step, 2)]) and None)


@pytest.mark.parametrize("stack", STACKS)
def test_a_step_calls_what_its_trace_has(stack: str) -> None:
    run = run_with(*map(Spec.parse, stack.split("+")))
    assert called_otherwise(observed(run, 2)[1], calls(build_step(run))) == ""


@pytest.mark.parametrize("stack", [STACKS[0], "muon", "optimizer_in_backward", STACKS[-1]])
def test_calls_are_those_of_torchs_own_list(stack: str) -> None:
    step = build_step(run_with(*map(Spec.parse, stack.split("+"))))
    counted = calls(step)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        read(step, [take_step(step, 3)])
    listed = Counter(event.name for event in seen.events() if event.name.startswith("aten::"))
    assert {f"aten::{name}": count for name, count in counted.items()} == listed


@pytest.mark.parametrize(
    ("stack", "operator"),
    [
        ("fused_adamw", "_foreach_add_"),
        ("foreach_adamw", "_foreach_"),
        ("sdpa_attention", "_scaled_dot_product"),
        ("activation_checkpointing", "native_layer_norm"),
        ("chunked_cross_entropy", "mm"),
        ("gradient_accumulation:micro_batches=2", "native_layer_norm"),
    ],
)
def test_a_step_without_the_technique_calls_others(stack: str, operator: str) -> None:
    trace = observed(run_with(Spec.parse(stack)), 2)[1]
    assert operator in called_otherwise(trace, calls(build_step(run_with())))


MIB = 2**20


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("peak", [MIB, 40 * MIB, 4000 * MIB])
def test_the_bound_is_the_edge(peak: int, threads: int) -> None:
    bound = bound_bytes(peak, threads)
    for difference, fault in ((0, ""), (bound, ""), (bound + 1, "outside of tensors"), (-bound - 1, "leave out")):
        memory = Memory(allocator_peak_bytes=peak, heap_peak_bytes=peak + difference)
        found = kept_aside(memory, threads, 0)
        assert fault in found
        assert bool(found) == bool(fault)


def test_figures_of_an_honest_run_are_within_it() -> None:
    """One measured run of `demo` with bf16_mixed: 8.26 MiB of heap, 8.08 MiB of tensors and 0.39 of scratch."""
    assert not kept_aside(Memory(allocator_peak_bytes=8_880_000, heap_peak_bytes=8_660_000), 1, 300)


def test_a_halved_peak_that_is_not_real_is_seen_on_the_smallest_model() -> None:
    """`demo` without and with checkpointing: 11.2 and 5.57 MiB of tensors."""
    assert kept_aside(Memory(allocator_peak_bytes=int(5.57 * MIB), heap_peak_bytes=int(11.2 * MIB)), 2, 300)


def test_a_figure_that_was_not_counted_is_not_judged() -> None:
    assert not kept_aside(Memory(allocator_peak_bytes=MIB), 1, 0)
    assert not kept_aside(Memory(heap_peak_bytes=MIB), 1, 0)


def test_the_graph_of_a_model_of_many_small_operators_is_allowed_for() -> None:
    """The recurrent model of docs/own-model.md: 1.86 MiB of heap, 1.30 of tensors, 671 operators of forward."""
    memory = Memory(allocator_peak_bytes=1_358_728, heap_peak_bytes=1_950_582)
    assert not kept_aside(memory, 1, 671)
    assert kept_aside(memory, 1, 100)
