"""Sizes of a model: their shape, both counts of N, and the steps that spend a budget."""

import pytest

from assay.cost import parameter_count
from assay.errors import UsageError
from assay.studies.isoflop_sizes import check_base, counts, flops_of, run_at_width, run_of_size, shape, steps_for
from support.scaled import base


def test_a_size_keeps_the_aspect_ratio_and_the_heads() -> None:
    assert shape(base(), 64) == {"model.n_embd": 64, "model.n_layer": 3, "model.n_head": 8}
    assert shape(base(), 40) == {"model.n_embd": 40, "model.n_layer": 2, "model.n_head": 5}
    assert shape(base(), 8)["model.n_layer"] == 1
    with pytest.raises(UsageError, match="no multiple of a head, which is 8 wide"):
        shape(base(), 20)


def test_both_counts_are_those_of_the_weights() -> None:
    size = run_at_width(base(), 32)
    known = counts(size.model)
    assert known["total"] == parameter_count(size.model)
    assert known["total"] - known["non_embedding"] == 32 * (256 + 16), "a table of bytes and one of 16 places"
    untied = run_at_width(base("model.tie_embeddings=false", "model.position=rotary", "model.n_layer=4"), 32)
    assert counts(untied.model)["total"] - counts(untied.model)["non_embedding"] == 2 * 32 * 256


def test_a_run_spends_its_flops_and_its_schedule_ends_with_it() -> None:
    size = run_at_width(base(), 32)
    steps = int(steps_for(size, 1e11, "total"))
    run = run_of_size(size, base(), steps, 0.5)
    assert flops_of(run, "total") == 6 * counts(size.model)["total"] * steps * 4 * 16
    assert 1e11 * (1 - 1 / steps) <= flops_of(run, "total") <= 1e11
    assert run.training.warmup_steps == round(0.05 * steps)
    assert run.training.decay_steps is None
    assert run.training.learning_rate == pytest.approx(base().training.learning_rate / 2)
    assert run.training.min_learning_rate == pytest.approx(base().training.min_learning_rate / 2)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("model.n_hidden=100", "model.n_hidden is set"),
        ("model.n_kv_head=2", "model.n_kv_head is set"),
        ("training.tokens=1000", "end runs early"),
        ("training.schedule=constant", "needs the cosine schedule"),
    ],
)
def test_a_base_without_other_sizes_is_refused(override: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_base(base(override))


def test_a_vocabulary_that_is_not_known_is_asked_for() -> None:
    with pytest.raises(UsageError, match=r"give model\.vocab_size"):
        counts(run_at_width(base("data.tokenizer=char"), 32).model)
