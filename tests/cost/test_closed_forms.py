"""Closed forms against the tables that were made with them, and against the ledger of this package."""

import pytest

from assay.config import load
from assay.cost import parameter_count
from assay.cost.closed_forms import (
    forward_flops,
    layer_activation_bytes,
    state_bytes,
    step_flops,
    training_seconds,
)
from assay.estimator import estimate
from assay.hardware import Machine
from support.published import A100_FLOPS, KORTHIKANTI, MEGATRON, Korthikanti, Megatron, gpt

DAY = 86_400


@pytest.mark.parametrize("row", MEGATRON, ids=lambda row: f"{row.billions}B")
def test_megatron_s_models_have_the_published_size_and_flops(row: Megatron) -> None:
    """arXiv:2104.04473, table 1: sizes within 3 % (the two smallest are rounded oddly; the others within 0.5 %)."""
    assert parameter_count(row.model) / 1e9 == pytest.approx(row.billions, rel=0.03)
    # Equation 3: 96 B s l h² (1 + s/6h + V/16lh).
    layers, width, length = row.model.n_layer, row.model.n_embd, 2048
    by_hand = 96 * row.batch * length * layers * width**2
    by_hand *= 1 + length / (6 * width) + 51_200 / (16 * layers * width)
    assert step_flops(row.model, row.batch, "full") == pytest.approx(by_hand, rel=1e-12)
    # A device's rate times devices is the aggregate; both are printed rounded.
    assert row.devices * row.teraflops / 1000 == pytest.approx(row.petaflops, rel=0.005)


def test_megatron_s_training_times() -> None:
    """arXiv:2104.04473, equation 4 and the examples after it: 34 days and 84 days."""
    assert training_seconds(175e9, 300e9, 1024, 140e12) / DAY == pytest.approx(34, abs=0.5)
    assert training_seconds(1008e9, 450e9, 3072, 163e12) / DAY == pytest.approx(84, abs=0.5)


@pytest.mark.parametrize("row", KORTHIKANTI, ids=lambda row: f"{row.billions}B")
def test_model_flops_utilization_is_the_published_one(row: Korthikanti) -> None:
    """arXiv:2205.05198, table 5: MFU to its last digit from the printed seconds."""
    roof = row.seconds * row.devices * A100_FLOPS
    assert step_flops(row.model, row.batch) / roof == pytest.approx(row.mfu, abs=2e-3)
    # Its HFU counts recomputed attention at 12 Bs²hL; once is 4.
    parts = forward_flops(row.model, row.batch)
    theirs = (step_flops(row.model, row.batch) + 3 * parts["scores"]) / roof
    ours = step_flops(row.model, row.batch, "selective") / roof
    assert theirs == pytest.approx(row.hfu, abs=2e-3)
    assert row.mfu < ours < row.hfu


def test_selective_recomputation_saves_what_is_published() -> None:
    """arXiv:2205.05198, section 5: 5as/h is 80 and 64; 70 % and 65 % of a layer's activations are saved."""
    for layers, width, heads, share, saved in ((96, 12288, 96, 80, 0.70), (105, 20480, 128, 64, 0.65)):
        model = gpt(layers, width, heads)
        unit = 2048 * width
        whole = layer_activation_bytes(model, 1)
        assert whole / unit == 34 + share
        parallel = {"tensor": 8, "sequence_parallel": True}
        kept = [layer_activation_bytes(model, 1, recompute=how, **parallel) for how in ("none", "selective")]
        assert 1 - kept[1] / kept[0] == pytest.approx(saved, abs=0.006)


def test_the_table_of_activations() -> None:
    """arXiv:2205.05198, table 2, row by row for t = 8 at GPT-3's shape, where 5as/h is 80."""
    model = gpt(96, 12288, 96)

    def row(**how: object) -> float:
        return layer_activation_bytes(model, 1, **how) / (2048 * 12288)

    assert row() == 34 + 80
    assert row(tensor=8) == 10 + 24 / 8 + 80 / 8
    assert row(tensor=8, sequence_parallel=True) == 34 / 8 + 80 / 8
    assert row(tensor=8, recompute="selective") == 10 + 24 / 8
    assert row(tensor=8, sequence_parallel=True, recompute="selective") == 34 / 8
    assert row(tensor=8, recompute="full") == 2
    assert row(context=4) == (34 + 80) / 4


def test_zero_divides_as_published() -> None:
    """arXiv:1910.02054, figure 1: 7.5 billion parameters on 64 ranks, in GB; table 1: a trillion on 1024."""
    held = [sum(state_bytes(7.5e9, 64, stage)) / 1e9 for stage in range(4)]
    assert held == pytest.approx([120, 31.4, 16.6, 1.9], abs=0.05)
    assert sum(state_bytes(1e12, 1024, 3)) / 1e9 == pytest.approx(15.6, abs=0.05)


def test_the_forms_agree_with_the_ledger() -> None:
    """The ledger counts the same matrix products of GPT-2, exactly."""
    run = load("gpt2-124m", ["training.batch_size=2", "model.vocab_size=50304"])
    machine = Machine(processor="any", cores=2, memory_bytes=2**34)
    counted = estimate(run, machine).model_flops
    assert step_flops(run.model, run.training.batch_size) == counted
