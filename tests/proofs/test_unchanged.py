"""Two traces of one program agree; of programs of which one has lost something they do not, and it is named."""

from assay.config import Spec
from assay.proofs.unchanged import differences
from support.runs import run_with
from support.steps import traced
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


def test_compiled_calls_are_named_first() -> None:
    trace = traced(run_with())
    more = altered(trace, graph_replays=1, training_graphs=3)
    assert differences(more, trace) == "graph replays 1 → 0, graphs compiled for training 3 → 0"
