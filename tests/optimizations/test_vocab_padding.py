"""Rows that hold nothing: never chosen, never learned, never at rest, and counted apart."""

from pathlib import Path

import pytest
import torch

from assay.config import Spec
from assay.estimator import estimate
from assay.hardware import Machine
from assay.optimizations import Conflict, resolve
from assay.training.loop import train_step
from support.peaks import assert_peak
from support.runs import FOUR, SHAPE, UNTIED, run_with, without
from support.steps import build_step, losses, saved_bytes, traced

PADDED = Spec(name="vocab_padding", fields={"multiple": 64})
CPU = Machine(processor="any", cores=2, memory_bytes=2**34)


@pytest.mark.parametrize("model", [SHAPE, UNTIED], ids=["tied", "untied"])
def test_padding_is_never_learned_and_changes_no_loss(model: object) -> None:
    step = build_step(run_with(PADDED, model=model))  # type: ignore[arg-type]
    found = [train_step(step, index).loss for index in range(3)]
    assert found == pytest.approx(losses(run_with(model=model)), rel=1e-6)  # type: ignore[arg-type]
    weights = dict(step.named_parameters())
    for name in step.program.weights.rows_at_rest.keys() & weights.keys():
        assert weights[name].shape[0] == 64
        assert not weights[name][61:].any()
        assert weights[name][:61].any()


def test_padded_logits_are_never_the_largest() -> None:
    (part,) = build_step(run_with(PADDED)).parts
    logits = part.logits(torch.arange(16).unsqueeze(0))
    assert logits.shape[-1] == 64
    assert (logits[..., 61:] == -torch.inf).all()
    assert logits[..., :61].isfinite().all()


@pytest.mark.parametrize("others", [(), *((one,) for one in FOUR), FOUR], ids=lambda stack: "+".join(map(str, stack)))
@pytest.mark.parametrize("model", [SHAPE, UNTIED], ids=["tied", "untied"])
def test_saved_bytes_equal_the_measured_ones(others: tuple[Spec, ...], model: object) -> None:
    run = run_with(PADDED, *others, model=model)  # type: ignore[arg-type]
    assert estimate(run, CPU).timeline.saved_bytes == saved_bytes(build_step(run))


def test_the_peak_is_the_measured_one() -> None:
    assert_peak("vocab_padding:multiple=96")


def test_held_bytes_are_predicted_and_the_model_needs_no_more_flops() -> None:
    trace, predicted = traced(run_with(PADDED)), estimate(run_with(PADDED), CPU)
    assert predicted.cost.parameter_bytes == trace.memory.parameter_bytes
    assert predicted.cost.optimizer_state_bytes == trace.memory.optimizer_state_bytes
    plain = estimate(run_with(), CPU)
    assert predicted.model_flops == plain.model_flops
    assert predicted.step_flops == plain.step_flops + 3 * 2 * 4 * SHAPE.context_length * SHAPE.n_embd * 3
    assert predicted.parameters == plain.parameters


def test_a_checkpoint_has_tokens_only_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    from assay.training.checkpoints.checkpoint import resume, save
    from assay.training.step_record import Position

    step, other = build_step(run_with(PADDED)), build_step(run_with(PADDED))
    train_step(step, 0)
    place = save(tmp_path, step, Position(step=1), "any")
    from assay.model.weights import load_model, read_safetensors

    assert load_model(place, SHAPE).embedding.token.weight.shape == (61, SHAPE.n_embd)
    state = read_safetensors(place / "optimizer.safetensors")
    assert state["state.embedding.token.weight.exp_avg"].shape == (61, SHAPE.n_embd)
    assert resume(tmp_path, other)[0].step == 1
    assert train_step(other, 1).loss == train_step(step, 1).loss
    assert train_step(other, 2).loss == train_step(step, 2).loss


def test_it_is_proven_where_it_was_applied_and_only_there() -> None:
    run = run_with(PADDED, FOUR[3])
    evidence = resolve(PADDED).verify(traced(run), run)
    assert evidence.verdict
    assert evidence.observed == "logits of 64 columns and weights of [64] rows for a vocabulary of 61"
    assert not resolve(PADDED).verify(traced(without(run)), without(run)).verdict


def test_log_probabilities_in_16_bits_have_as_many_columns() -> None:
    run = run_with(PADDED)
    trace = traced(run)
    narrow = [
        one.model_copy(update={"dtype": "bfloat16", "largest_bytes": one.largest_bytes // 2})
        if one.name == "aten._log_softmax"
        else one
        for one in trace.operations
    ]
    evidence = resolve(PADDED).verify(trace.model_copy(update={"operations": tuple(narrow)}), run)
    assert evidence.verdict, evidence.observed


def test_a_vocabulary_that_needs_no_padding_or_lies_on_ranks_is_refused() -> None:
    with pytest.raises(Conflict, match="divides the vocabulary of 61 already"):
        resolve(Spec(name="vocab_padding", fields={"multiple": 61})).check(run_with(), CPU)
    with pytest.raises(Conflict, match="on one device only; with several ranks"):
        resolve(PADDED).check(run_with().model_copy(update={"ranks": 2}), CPU)


def test_a_vocabulary_that_is_not_known_yet_is_checked_later() -> None:
    unknown = run_with(PADDED).model_copy(update={"model": SHAPE.model_copy(update={"vocab_size": None})})
    resolve(PADDED).check(unknown, CPU)
