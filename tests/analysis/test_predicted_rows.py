"""Changes and deviations of a predicted study against figures that are computed here by hand, and its ranks."""

from typing import Any

import pytest

import assay
from assay.analysis.predicted_rows import (
    COMPARED,
    REQUESTED,
    Rank,
    change,
    deviations,
    grids,
    held_memory,
    published_grids,
    ranks,
    told_apart,
    utilization,
)
from assay.api.result_types import PredictedAnswer
from assay.records.study import BASELINE

DEVICE = "a100-40gb"
SHAPES = {
    "default": (),
    "context x2": ("model.context_length=512",),
    "layers x2": ("model.n_layer=12",),
    "embeddings x2": ("model.n_embd=768",),
}
STACKS = ("none", "sgd:momentum=0", "fp16_mixed", "bf16_mixed", "smaller_batch:factor=4", "gradient_accumulation")
"""The 24 runs of the second document."""


@pytest.fixture(scope="module")
def twenty_four() -> PredictedAnswer:
    return assay.study.predict("gpu-twenty-four", device=DEVICE)


def figures(*overrides: str, stack: str) -> dict[str, Any]:
    """What `assay estimate --device` says of one of the 24 runs."""
    stacked = None if stack == "none" else stack
    found = assay.estimate("shakespeare-char", *overrides, optimizations=stacked, device=DEVICE).to_dict()
    return {**found, "requested_peak_bytes": found["requested_peak_bytes"]["high"]}


def test_the_matrix_is_that_of_the_estimates_by_hand(twenty_four: PredictedAnswer) -> None:
    by_hand = {(stack, shape): figures(*changes, stack=stack) for shape, changes in SHAPES.items() for stack in STACKS}
    checked = 0
    for grid in grids(twenty_four):
        first = by_hand["none", "default"][grid.metric]
        for (stack, shape), found in by_hand.items():
            one = grid.fields[grid.down_levels.index(stack)][grid.across_levels.index(shape)]
            assert one is not None
            assert one.change == pytest.approx(found[grid.metric] / first - 1, abs=1e-12)
            top = by_hand["none", shape][grid.metric]
            assert one.column_change == pytest.approx(found[grid.metric] / top - 1, abs=1e-12)
            if stack == "none" or shape == "default":
                assert one.deviation is None
                continue
            alone = by_hand[stack, "default"][grid.metric]
            expected = found[grid.metric] / first - 1 - (top / first - 1) - (alone / first - 1)
            assert one.deviation == pytest.approx(expected, abs=1e-12)
            checked += 1
    assert checked == 3 * 5 * len(COMPARED)


def test_the_document_s_own_matrix_is_computed_from_its_table(twenty_four: PredictedAnswer) -> None:
    theirs = {column.name: grid for column, grid in published_grids(twenty_four)}
    assert list(theirs) == ["Memory Used (GB)", "Training Time (s)"]
    grid = theirs["Memory Used (GB)"]
    one = grid.fields[grid.down_levels.index("fp16_mixed")][grid.across_levels.index("context x2")]
    assert one is not None
    assert one.change == pytest.approx(3.71 / 3.20 - 1)
    assert one.deviation == pytest.approx((3.71 - 5.83 - 2.04 + 3.20) / 3.20)


def test_the_deviation_of_a_pair_is_its_change_less_both() -> None:
    study = assay.study.predict_comparison("gpt2-124m", device="h200", treatments=["bf16_mixed", "sdpa_attention"])
    peaks = [
        assay.estimate("gpt2-124m", optimizations=stack, device="h200").to_dict()["saved_bytes"]
        for stack in (None, "bf16_mixed", "sdpa_attention", "bf16_mixed+sdpa_attention")
    ]
    (saved,) = (one for one in deviations(study) if one.metric == "saved_bytes")
    (pair,) = saved.deviations
    assert pair.points.value == pytest.approx((peaks[3] - peaks[1] - peaks[2] + peaks[0]) / peaks[0])
    assert pair.ratio.value == pytest.approx(peaks[3] * peaks[0] / (peaks[1] * peaks[2]) - 1)


def test_times_within_their_margin_are_not_ranked() -> None:
    study = assay.study.predict_comparison(
        "gpt2-124m", device=DEVICE, treatments=["bf16_mixed", "sdpa_attention", "activation_checkpointing"]
    )
    seconds = {label: found.step_seconds for label, found in study.known.items()}
    assert 0 < 1 - seconds["sdpa_attention"] / seconds[BASELINE] < 0.4 < 1 - seconds["bf16_mixed"] / seconds[BASELINE]
    assert not told_apart(study, "sdpa_attention", BASELINE)
    assert not told_apart(study, BASELINE, BASELINE)
    assert told_apart(study, BASELINE, "bf16_mixed")
    others = dict.fromkeys((BASELINE, "sdpa_attention", "activation_checkpointing"), Rank(2, 4))
    assert ranks(study) == {**others, "bf16_mixed": Rank(1, 1)}


def test_utilization_and_fit_follow_from_the_estimate() -> None:
    study = assay.study.predict_comparison("gpt2-124m", device="t4", treatments=["activation_checkpointing"])
    control = study.known[BASELINE]
    assert control.step_seconds is not None
    assert utilization(control) == pytest.approx(control.model_flops / (control.step_seconds * 8.1e12))
    assert held_memory(control).fit == "does not fit"
    assert held_memory(study.known["activation_checkpointing"]).fit == "fits"


def test_a_captured_graph_has_no_memory_that_could_be_compared() -> None:
    study = assay.study.predict_comparison("demo", device="h200", treatments=["cuda_graphs", "bf16_mixed"])
    found = study.known["cuda_graphs"]
    assert (REQUESTED.of(found), held_memory(found).fit) == (None, None)
    assert change(study, REQUESTED, "cuda_graphs") is None
    assert change(study, REQUESTED, "bf16_mixed") is not None
    assert "Captured graphs have a pool of their own, which is not predicted: cuda_graphs." in list(study.report())
