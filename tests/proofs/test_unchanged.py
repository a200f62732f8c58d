"""Two traces of one program agree; of programs of which one has lost something they do not, and it is named."""

from collections.abc import Iterator

import pytest
import torch

from assay.config import Spec
from assay.instruments.step_trace import StepTracer
from assay.proofs.unchanged import differences, left_settings
from assay.records.trace import ENDED, Trace
from assay.training.loop import train_step
from support.runs import run_with
from support.steps import build_step, traced
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
