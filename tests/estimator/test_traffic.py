"""Bytes by axis against what the papers count."""

import pytest

from assay.config.mesh import Mesh
from assay.cost import parameter_count
from assay.cost.analytic.layout import Layout
from assay.cost.collectives import sent_by_axis
from assay.estimator.traffic import gradient_traffic, layer_traffic, traffic
from support.published import gpt

GPT3 = gpt(96, 12288, 96)
UNIT = 2048 * 12288


def layer(layout: Layout) -> float:
    both = [one for backward in (False, True) for one in layer_traffic(GPT3, layout, backward=backward)]
    return sum(sent_by_axis(both, layout.mesh).values())


def test_a_tensor_parallel_layer_sends_what_is_published() -> None:
    """arXiv:2104.04473, section 3.2: 8bsh (t−1)/t elements for each layer and micro-batch."""
    assert layer(Layout(Mesh(tp=8), 8)) == pytest.approx(2 * 8 * UNIT * 7 / 8)
    assert layer(Layout(Mesh(tp=8), 8, micro_batch=4)) == pytest.approx(2 * 8 * 4 * UNIT * 7 / 8)


def test_sequence_parallelism_sends_the_same_and_gathers_two_inputs_again() -> None:
    """arXiv:2205.05198, section 4.2.2."""
    assert layer(Layout(Mesh(tp=8), 8, sequence_parallel=True)) == pytest.approx(2 * (8 + 2) * UNIT * 7 / 8)


def test_full_recomputation_sums_forward_again() -> None:
    assert layer(Layout(Mesh(tp=8), 8, recompute="full")) == pytest.approx(2 * 12 * UNIT * 7 / 8)


def test_a_ring_passes_keys_and_values_and_their_gradients() -> None:
    # Forward (c−1)/c of both, backward both again and their gradients: three times 2bsh elements.
    assert layer(Layout(Mesh(cp=4), 8)) == pytest.approx(2 * 3 * 2 * UNIT * 3 / 4)


def test_zero_sends_what_is_published() -> None:
    """arXiv:1910.02054, section 7: 2Ψ elements without it and in stages 1 and 2, 3Ψ in stage 3."""
    mesh, elements = Mesh(dp=64), parameter_count(GPT3)
    for stage, times in ((0, 2), (1, 2), (2, 2), (3, 3)):
        sent = gradient_traffic(GPT3, Layout(mesh, 64, zero=stage))
        assert sent_by_axis(sent, mesh)["dp+cp"] == pytest.approx(times * 2 * elements * 63 / 64)
    # Stages 2 and 3 keep only a share between micro-batches, so each of four is summed, and gathered for.
    for stage, times in ((0, 2), (1, 2), (2, 4 + 1), (3, 4 + 8)):
        sent = gradient_traffic(GPT3, Layout(mesh, 256, zero=stage))
        assert sent_by_axis(sent, mesh)["dp+cp"] == pytest.approx(times * 2 * elements * 63 / 64)
    assert gradient_traffic(GPT3, Layout(Mesh(tp=8), 8)) == []


def test_a_pipeline_sends_a_layer_s_output_once_a_chunk() -> None:
    """arXiv:2104.04473, section 3.2: bsh elements to the next stage for each micro-batch; interleaved, v times.

    An end sends in one direction, and its copy of the tied embedding; a stage between two others sends in both.
    """
    table = 2 * 51_200 * 12288
    mesh = Mesh(pp=8)
    assert sent_by_axis(traffic(GPT3, Layout(mesh, 16)), mesh)["pp"] == 2 * 16 * UNIT + table
    assert sent_by_axis(traffic(GPT3, Layout(mesh, 64)), mesh)["pp"] == 2 * 2 * 64 * UNIT
    often = Layout(mesh, 16, schedule="interleaved", chunks=3)
    assert sent_by_axis(traffic(GPT3, often), mesh)["pp"] == (2 * 3 - 1) * 2 * 16 * UNIT + table
    vee = Layout(mesh, 16, schedule="zero_bubble_v", chunks=2)
    assert sent_by_axis(traffic(GPT3, vee), mesh)["pp"] == 2 * 2 * 2 * 16 * UNIT
    two = Mesh(pp=2)
    assert sent_by_axis(traffic(GPT3, Layout(two, 16)), two)["pp"] == 2 * 16 * UNIT + table
    assert sent_by_axis(traffic(GPT3, Layout(Mesh(), 16)), Mesh()) == {}


def test_a_step_counts_every_layer_and_micro_batch() -> None:
    layout = Layout(Mesh(pp=4, dp=2, tp=8), 32)
    assert sent_by_axis(traffic(GPT3, layout), layout.mesh)["tp"] == pytest.approx(16 * 24 * layer(layout))
