"""Plans against published steps, with one rate for every device, and what a rank of a plan holds."""

import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.api import configure
from assay.api import plan as planned_step
from assay.api.configuration import on_device
from assay.config import ModelConfig
from assay.config.mesh import Mesh
from assay.cost import parameter_count
from assay.cost.collectives import sent_by_axis
from assay.cost.mesh_layout import Layout
from assay.cost.pipeline_bubble import StageTime, bubble_fraction, play
from assay.errors import UsageError
from assay.estimator.estimate import estimate
from assay.estimator.plan import StepPlan, gradient_traffic, layer_traffic, plan, rank_memory, rank_parameters, traffic
from assay.hardware.links import INFINIBAND_HDR, INFINIBAND_NDR, NVLINK_A100, NVLINK_H200, Network
from support.published import A100_FLOPS, KORTHIKANTI, MEGATRON, Korthikanti, Megatron, gpt
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


@pytest.mark.parametrize(
    ("name", "batch", "stack", "ranks"),
    [
        ("gpt2-124m", 1024, "fully_sharded", 8),
        ("gpt2-124m", 64, "data_parallel", 8),
        ("gpt2-124m", 64, "tensor_parallel:degree=4", 4),
        ("gpt2-124m", 64, "tensor_parallel:degree=2+data_parallel+activation_checkpointing", 8),
        ("gpt2-774m", 64, "fully_sharded+activation_checkpointing", 8),
    ],
)
def test_a_rank_holds_what_its_ledger_has(name: str, batch: int, stack: str, ranks: int) -> None:
    """Within a fifth below, which buffers and gathered weights take; the logits of the first were 32 GiB too few."""
    words, techniques = (name, f"training.batch_size={batch}"), f"{stack}+sdpa_attention+bf16_mixed"
    run, machine = on_device(configure(*words[:1], (*words[1:], f"ranks={ranks}"), techniques), "a100")
    planned = planned_step(*words, optimizations=techniques, gpu="a100", nodes=1, gpus_per_node=ranks).plan
    assert 0.8 < planned.memory_bytes / estimate(run, machine).most_bytes <= 1
    assert planned.held[-1].loss > 0


def test_no_layer_is_recomputed_while_the_loss_is_computed() -> None:
    """So the larger of both counts, and of a small vocabulary the loss adds nothing."""
    small, large = (gpt(4, 512, 8).model_copy(update={"vocab_size": size}) for size in (512, 512_000))
    kept = {
        (model.vocabulary, again): rank_memory(model, Layout(Mesh(), 4, 4, recompute=again), (Fraction(1),))[0]
        for model in (small, large)
        for again in ("none", "full")
    }
    assert kept[512, "full"].loss == 0 < kept[512, "none"].loss
    tokens = 4 * small.context_length
    assert kept[512_000, "none"].loss == 6 * tokens * 512_000
    assert 0 < kept[512_000, "full"].loss < kept[512_000, "none"].loss


def test_zero_divides_among_those_that_share_a_batch() -> None:
    bare, shared = (Layout(Mesh(dp=4, cp=2, tp=8), 4, zero=stage) for stage in (0, 3))
    whole, part = (rank_memory(GPT3, one, (Fraction(1),))[0] for one in (bare, shared))
    for name in ("weights", "gradients", "optimizer"):
        assert getattr(whole, name) == pytest.approx(8 * getattr(part, name))
    assert whole.nbytes == pytest.approx(16 * whole.parameters + whole.activations + whole.loss)


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


SELENE = Network(inner=NVLINK_A100, outer=INFINIBAND_HDR, ranks_per_node=8)
"""Both papers' cluster: DGX A100 with eight HDR ports each (arXiv:2104.04473, section 5)."""
RATE = 200e12
"""FLOP/s of an A100's products: the one fitted number, 64 % of the peak, between the rows of 175 and 530 billion."""
A100_BYTES = 80e9


def korthikanti(row: Korthikanti, *, full: bool = False) -> StepPlan:
    layout = Layout(
        Mesh(pp=row.pp, tp=8),
        row.batch,
        row.micro_batch,
        "interleaved" if row.chunks > 1 else "one_f_one_b",
        row.chunks,
        sequence_parallel=not full,
        recompute="full" if full else "selective",
    )
    return plan(row.model, layout, SELENE, RATE)


def megatron(row: Megatron) -> StepPlan:
    mesh = Mesh(pp=row.pp, dp=row.devices // row.pp // row.tp, tp=row.tp)
    return plan(row.model, Layout(mesh, row.batch, recompute="full"), SELENE, RATE)


@pytest.mark.parametrize("row", KORTHIKANTI[1:], ids=lambda row: f"{row.billions}B")
def test_steps_of_large_models_take_the_published_seconds(row: Korthikanti) -> None:
    """arXiv:2205.05198, table 5: within 12 %, with selective recomputation and with full."""
    for full, published in ((False, row.seconds), (True, row.full_seconds)):
        assert korthikanti(row, full=full).step_seconds == pytest.approx(published, rel=0.12)
    assert korthikanti(row).mfu(A100_FLOPS) == pytest.approx(row.mfu, rel=0.12)


@pytest.mark.parametrize("row", KORTHIKANTI, ids=lambda row: f"{row.billions}B")
def test_the_cost_of_recomputation_hardly_depends_on_the_rate(row: Korthikanti) -> None:
    """Full over selective: 1.29 to 1.32 in table 5; within 2 % at every size, the smallest included."""
    ratio = korthikanti(row, full=True).step_seconds / korthikanti(row).step_seconds
    assert ratio == pytest.approx(row.full_seconds / row.seconds, rel=0.02)


@pytest.mark.parametrize("row", MEGATRON[6:], ids=lambda row: f"{row.billions}B")
def test_large_rows_achieve_the_published_rate(row: Megatron) -> None:
    """arXiv:2104.04473, table 1: within 10 % from 146 billion parameters on, in micro-batches of one sequence."""
    assert megatron(row).executed_flops / 1e12 == pytest.approx(row.teraflops, rel=0.1)


@pytest.mark.parametrize("row", MEGATRON[:6], ids=lambda row: f"{row.billions}B")
def test_small_rows_are_planned_too_fast(row: Megatron) -> None:
    """What one rate leaves out: smaller products, and all that is no product. A plan is a floor there."""
    assert row.teraflops < megatron(row).executed_flops / 1e12 < 1.45 * row.teraflops


@pytest.mark.parametrize("row", MEGATRON, ids=lambda row: f"{row.billions}B")
def test_every_published_configuration_fits_its_device(row: Megatron) -> None:
    planned = megatron(row)
    assert planned.memory_bytes < A100_BYTES
    without = Layout(Mesh(dp=row.devices), row.devices, recompute="full")
    if row.billions > 5:
        assert plan(row.model, without, SELENE, RATE).memory_bytes > A100_BYTES
    assert planned.parameters / 1e9 == pytest.approx(row.billions, rel=0.03)


def test_both_techniques_together_save_five_fold() -> None:
    """arXiv:2205.05198, abstract: a fifth of the activations that tensor parallelism alone keeps."""
    for row in KORTHIKANTI[1:3]:
        layout = korthikanti(row).layout
        before = plan(row.model, replace(layout, sequence_parallel=False, recompute="none"), SELENE, RATE)
        after = korthikanti(row)
        saved = before.held[0].activations / after.held[0].activations
        assert saved == pytest.approx(5, rel=0.1)


def test_the_bubble_is_the_schedule_s_and_the_logits() -> None:
    row = KORTHIKANTI[1]
    planned = korthikanti(row)
    published = bubble_fraction(row.pp, row.batch, row.chunks)
    assert published < planned.bubble < published + 0.03
    gpipe = replace(planned.layout, schedule="gpipe", chunks=1)
    assert plan(row.model, gpipe, SELENE, RATE).bubble > planned.bubble
    assert plan(row.model, gpipe, SELENE, RATE).memory_bytes > planned.memory_bytes


def test_bytes_are_by_axis() -> None:
    planned = megatron(MEGATRON[7])
    assert set(planned.sent_bytes) == {"tp", "pp", "dp+cp"}
    assert planned.sent_bytes["tp"] > 20 * max(planned.sent_bytes["pp"], planned.sent_bytes["dp+cp"])
    assert planned.gradient_seconds < 0.1 * planned.step_seconds


def test_a_hundred_trillion_parameters() -> None:
    """As many parameters as a brain has synapses: a step fits on a hundred thousand H200s, a training in no lifetime.

    Twenty tokens a parameter (arXiv:2203.15556) are 2e15, at 6 FLOPs each for a parameter 1.2e30.
    """
    model = gpt(312, 163_840, 1280)
    mesh = Mesh(pp=104, dp=16, tp=64)
    network = Network(inner=NVLINK_H200, outer=INFINIBAND_NDR, ranks_per_node=8)
    layout = Layout(mesh, 16 * 208, zero=1, sequence_parallel=True, recompute="selective")
    planned = plan(model, layout, network, 600e12)
    assert planned.parameters == pytest.approx(1e14, rel=0.01)
    assert mesh.size == 106_496
    assert planned.memory_bytes < 141e9
    assert plan(model, replace(layout, zero=0), network, 600e12).memory_bytes > 141e9
    years = planned.training_seconds(20 * planned.parameters) / 86_400 / 365
    floor = 6 * 20 * planned.parameters**2 / (mesh.size * 600e12) / 86_400 / 365
    assert 500 < floor < years < 10 * floor


def test_a_vocabulary_must_be_known() -> None:
    with pytest.raises(UsageError, match=r"set model\.vocab_size"):
        plan(gpt(2, 64, 2).model_copy(update={"vocab_size": None}), Layout(Mesh(), 1), SELENE, RATE)


def test_a_plan_imports_no_torch() -> None:
    check = "import assay.estimator.plan, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=60).returncode == 0


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
