"""The loss in pieces: equal to the plain one, exactly predicted, and refuted where logits were whole."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.config import Spec
from assay.errors import UsageError
from assay.estimator import estimate
from assay.hardware import Machine
from assay.model import ChunkedCrossEntropy as InPieces
from assay.model import Head
from assay.model.loss import VocabularyProjection
from assay.optimizations import Conflict, check, optimizations_of, resolve
from support.peaks import assert_peak
from support.runs import FOUR, SHAPE, drawn_runs, run_with, specs_of
from support.steps import build_step, measured_peak, saved_bytes, traced

CHUNKED = Spec(name="chunked_cross_entropy", fields={"chunks": 8})
CPU = Machine(processor="any", cores=2, memory_bytes=2**34)


def in_pieces(chunks: int, dtype: torch.dtype, rows: int = 13) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """(loss, gradient of x, gradient of the weight) of the plain loss and of the one in pieces."""
    torch.manual_seed(0)
    projection = VocabularyProjection(6, 17).to(dtype)
    x, targets = torch.randn(rows, 6, dtype=dtype, requires_grad=True), torch.randint(17, (rows,))
    targets[3] = -100
    found = []
    for loss in (lambda p, x, t: F.cross_entropy(p(x), t, reduction="sum"), InPieces(chunks)):
        value = loss(projection, x, targets)
        found.append([value, *torch.autograd.grad(0.25 * value, (x, projection.weight))])
    return found[0], found[1]


@pytest.mark.parametrize("chunks", [2, 5, 13, 16])
@pytest.mark.parametrize(("dtype", "within"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_value_and_gradients_are_those_of_the_plain_loss(chunks: int, dtype: torch.dtype, within: float) -> None:
    for plain, other in zip(*in_pieces(chunks, dtype), strict=True):
        assert other.dtype is plain.dtype
        assert (other - plain).norm() <= within * plain.norm()


def test_the_largest_tensor_of_the_loss_is_a_piece() -> None:
    run = run_with(CHUNKED)
    trace = traced(run)
    rows = 4 * SHAPE.context_length
    assert trace.largest_bytes("_log_softmax") == 4 * (rows // 8) * SHAPE.vocabulary
    assert traced(run_with()).largest_bytes("_log_softmax") == 4 * rows * SHAPE.vocabulary
    evidence = resolve(CHUNKED).verify(trace, run)
    assert evidence.observed == (
        "8 chunks of logits in forward and 8 in backward; the largest takes 1952 bytes, all of one forward 15616"
    )


def test_pieces_in_forward_only_do_not_pass() -> None:
    run = run_with(CHUNKED)
    trace = traced(run)
    kept = tuple(one for one in trace.operations if (one.name, one.phase) != ("aten._log_softmax", "backward"))
    assert not resolve(CHUNKED).verify(trace.model_copy(update={"operations": kept}), run).verdict


def test_one_piece_that_is_everything_does_not_pass() -> None:
    run = run_with(CHUNKED)
    trace = traced(run)
    whole = tuple(
        one.model_copy(update={"largest_bytes": 15616}) if one.name == "aten._log_softmax" else one
        for one in trace.operations
    )
    assert not resolve(CHUNKED).verify(trace.model_copy(update={"operations": whole}), run).verdict


def test_nothing_of_the_logits_is_kept_and_the_model_needs_no_more_flops() -> None:
    plain, chunked = (estimate(run_with(*specs), CPU) for specs in ((), (CHUNKED,)))
    rows, wide = 4 * SHAPE.context_length, SHAPE.vocabulary
    assert plain.timeline.saved_bytes - chunked.timeline.saved_bytes == 4 * rows * wide + 4
    assert chunked.model_flops == plain.model_flops
    assert chunked.step_flops == plain.step_flops + 2 * rows * SHAPE.n_embd * wide


@pytest.mark.parametrize("others", [(), *((one,) for one in FOUR), FOUR], ids=lambda stack: "+".join(map(str, stack)))
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_saved_bytes_equal_the_measured_ones(others: tuple[Spec, ...], data: st.DataObject) -> None:
    run = data.draw(drawn_runs((CHUNKED, *others), dropout=not others))
    run = run.model_copy(update={"training": run.training.model_copy(update={"batch_size": 8})})
    assert estimate(run, CPU).timeline.saved_bytes == saved_bytes(build_step(run))


@pytest.mark.parametrize("others", ["", "+sdpa_attention+activation_checkpointing"])
def test_the_peak_and_its_instant_are_the_measured_ones(others: str) -> None:
    assert_peak(f"chunked_cross_entropy:chunks=4{others}")


@pytest.mark.parametrize("precision", ["bf16_full", "fp16_full"])
def test_logits_of_a_piece_are_predicted_in_float32_whatever_the_rest_computes_in(precision: str) -> None:
    wide = SHAPE.model_copy(update={"n_layer": 1, "vocab_size": 4001})
    run = run_with(Spec.parse("chunked_cross_entropy:chunks=2"), Spec(name=precision), model=wide)
    _, measured, instant = measured_peak(run)
    peak = estimate(run, CPU).timeline.peak
    assert peak.nbytes == pytest.approx(measured, rel=0.01)
    assert peak.label == instant


def test_some_pieces_of_a_micro_batch_with_fewer_tokens_are_empty() -> None:
    one_token = SHAPE.model_copy(update={"context_length": 1})
    run = run_with(CHUNKED, Spec.parse("gradient_accumulation:micro_batches=2"), model=one_token)
    fewer = run.model_copy(update={"training": run.training.model_copy(update={"batch_size": 8})})
    evidence = resolve(CHUNKED).verify(traced(fewer), fewer)
    assert evidence.verdict, evidence.observed


def test_an_impossible_cut_is_refused() -> None:
    with pytest.raises(Conflict, match="chunks=65 is more than the step's 64 tokens"):
        resolve(Spec(name="chunked_cross_entropy", fields={"chunks": 65})).check(run_with(), CPU)
    both = (CHUNKED, Spec(name="tensor_parallel"))
    run = run_with().model_copy(update={"optimizations": both, "ranks": 2})
    with pytest.raises(UsageError, match="both replace the step's loss"):
        check(run, CPU)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "others"),
    [
        ({}, ()),
        ({"norm": "rmsnorm", "activation": "swiglu", "position": "rotary", "bias": False}, ("sdpa_attention",)),
        ({}, ("activation_checkpointing",)),
    ],
    ids=["gpt2", "llama", "recomputed"],
)
def test_a_compiler_is_kept_out_and_what_is_held_is_predicted(model: dict[str, Any], others: tuple[str, ...]) -> None:
    several = SHAPE.model_copy(update={"vocab_size": 1000, **model})
    run = run_with(CHUNKED, *specs_of(("compile", *others)), model=several)
    trace, known = traced(run), estimate(run, CPU)
    for one in optimizations_of(run):
        evidence = one.verify(trace, run)
        assert evidence.verdict, evidence.observed
    assert trace.memory.saved_total_bytes == known.timeline.saved_bytes
    _, measured, instant = measured_peak(run)
    assert known.timeline.peak.nbytes == pytest.approx(measured, rel=1e-3)
    assert known.timeline.peak.label == instant


def test_a_head_that_computes_its_loss_in_pieces_is_compiled_up_to_it() -> None:
    head = Head(SHAPE)
    assert head.region is head
    head.cross_entropy = InPieces(2)
    assert head.region is head.norm
