"""What a rank holds: parameters add up to the model's, and activations are the published ones."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.config import ModelConfig
from assay.config.mesh import Mesh
from assay.cost import parameter_count
from assay.cost.mesh_layout import Layout
from assay.cost.pipeline_bubble import StageTime, play
from assay.estimator.planned_memory import rank_memory, rank_parameters
from support.published import gpt
from support.runs import model_configs

GPT3 = gpt(96, 12288, 96)


@settings(max_examples=40, deadline=None)
@given(model_configs(), st.integers(1, 3))
def test_stages_hold_the_model_once_and_a_tied_table_twice(model: ModelConfig, stages: int) -> None:
    held_by = rank_parameters(model, Layout(Mesh(pp=stages), 1))
    again = model.vocabulary * model.n_embd if stages > 1 and model.tie_embeddings else 0
    assert sum(held_by) == pytest.approx(parameter_count(model) + again, rel=1e-12)


def test_tensor_ranks_hold_norms_and_some_biases_each() -> None:
    width = 12288
    per_layer = (12 * width**2 + 7 * width) / 8 + 6 * width
    assert rank_parameters(GPT3, Layout(Mesh(pp=8, tp=8), 1))[3] == pytest.approx(12 * per_layer)


def test_the_first_stage_keeps_the_published_activations() -> None:
    """arXiv:2205.05198, sections 4.2.3 and 4.3: sbhL (34/t) (1 + (p−1)/(pm)), and the embedding's mask sbhp/t."""
    layout = Layout(Mesh(pp=8, tp=8), 64, 1, "interleaved", 3, 0, True, "none")
    unit = 2048 * 12288
    alive = play(layout.order(), [StageTime(1, 1, 1)] * 8).held
    first = rank_memory(GPT3, layout, alive)[0].activations
    factor = 1 + Fraction(7, 24)
    assert first == pytest.approx(unit * 96 * (34 + 80) / 8 * factor + unit * 8 * factor / 8)
    # Without a pipeline: sbhL/t × 4/L (1 + v/h) at the end.
    alone = Layout(Mesh(tp=8), 1, 1, sequence_parallel=True)
    kept = rank_memory(GPT3, alone, (Fraction(1),))[0].activations
    published = unit * 96 / 8 * ((34 + 80) + 1 / 96 + 4 / 96 * (1 + 51_200 / 12288))
    assert kept == pytest.approx(published)


def test_zero_divides_among_those_that_share_a_batch() -> None:
    bare, shared = (Layout(Mesh(dp=4, cp=2, tp=8), 4, zero=stage) for stage in (0, 3))
    whole, part = (rank_memory(GPT3, one, (Fraction(1),))[0] for one in (bare, shared))
    for name in ("weights", "gradients", "optimizer"):
        assert getattr(whole, name) == pytest.approx(8 * getattr(part, name))
    assert whole.nbytes == pytest.approx(16 * whole.parameters + whole.activations)


def test_a_vee_ends_where_it_began() -> None:
    """The first stage has the logits too, so a tied table is held once."""
    straight, vee = (
        Layout(Mesh(pp=4), 8, 1, schedule, chunks)  # type: ignore[arg-type]
        for schedule, chunks in (("one_f_one_b", 1), ("zero_bubble_v", 2))
    )
    assert sum(rank_parameters(GPT3, straight)) - sum(rank_parameters(GPT3, vee)) == GPT3.vocabulary * GPT3.n_embd
    alive = (Fraction(1),) * 4
    ends = [one.activations for one in rank_memory(GPT3, vee, alive)]
    assert ends[0] > ends[1] == ends[2] == ends[3]
