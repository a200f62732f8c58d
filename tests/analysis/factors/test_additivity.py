"""Deviations from additivity and grids of percent changes: by hand, and of the published table of 24 cells."""

from collections.abc import Mapping

import pytest

from assay.analysis.comparison import Comparison, analyse
from assay.analysis.factors.additivity import Grid, MetricDeviations, deviations, grids, sign_changes
from assay.analysis.factors.changes import factor_effects
from assay.records.study import CellResult
from support.comparisons import FACTORS as MADE
from support.comparisons import TREATMENTS, record
from support.factorials import LOSS, compared, factorial
from support.swept import Figures, factorial_record

SHAPES = ("default", "context x2", "layers x2", "embeddings x2")
STACKS = ("none", "sgd", "float16", "bfloat16", "reduced batch", "accumulation")
PUBLISHED = {
    "default": ((3.20, 239.97, 0.8247), (2.76, 228.39, 2.5818), (2.04, 157.77, 0.8079), (1.82, 150.99, 0.8209),
                (1.02, 104.26, 1.1896), (0.87, 229.22, 0.8288)),
    "context x2": ((5.83, 459.59, 0.5426), (5.38, 449.02, 2.5865), (3.71, 260.81, 0.5450), (3.71, 262.45, 0.5431),
                   (1.90, 157.54, 1.0484), (1.55, 375.62, 0.5513)),
    "layers x2": ((5.47, 424.55, 0.3751), (5.37, 423.20, 2.5683), (3.53, 265.74, 0.3733), (3.53, 265.06, 0.3750),
                  (1.61, 166.13, 1.1355), (1.68, 396.46, 0.3914)),
    "embeddings x2": ((5.94, 529.70, 0.3195), (5.72, 519.50, 2.5349), (3.95, 312.25, 0.3112), (3.95, 304.39, 0.3002),
                      (1.92, 179.93, 1.3644), (2.11, 417.97, 0.3222)),
}  # fmt: skip
"""Memory in GB, seconds and loss: Fahey, Exploring Memory and Compute in nanoGPT."""


def published(levels: Mapping[str, str]) -> tuple[float, float, float]:
    memory, seconds, loss = PUBLISHED[levels["shape"]][STACKS.index(levels["optimizations"])]
    return memory / 3.2, seconds / 239.97, loss / LOSS


@pytest.fixture(scope="module")
def twenty_four() -> Comparison:
    return compared(factorial({"shape": SHAPES, "optimizations": STACKS}), published, seeds=1)


def of(comparison: Comparison, metric: str) -> MetricDeviations:
    return next(one for one in deviations(comparison) if one.metric == metric)


def changes(grid: Grid) -> dict[tuple[str, str], float]:
    return {
        (shape, stack): one.change
        for stack, row in zip(grid.down_levels, grid.fields, strict=True)
        for shape, one in zip(grid.across_levels, row, strict=True)
        if one is not None
    }


@pytest.mark.parametrize(
    ("metric", "shape", "stack", "percent"),
    [
        ("val_loss", "embeddings x2", "none", -61),
        ("tensors_peak_bytes", "embeddings x2", "none", 85.6),  # "+85 %"
        ("step_seconds", "embeddings x2", "none", 120.7),  # where the document prints "+151 %"
        ("tensors_peak_bytes", "default", "sgd", -14),
        ("step_seconds", "default", "sgd", -5),
        ("val_loss", "default", "sgd", 213),
        ("tensors_peak_bytes", "default", "reduced batch", -68),
        ("step_seconds", "default", "reduced batch", -57),
        ("val_loss", "default", "reduced batch", 44),
        ("tensors_peak_bytes", "default", "accumulation", -73),
    ],
)
def test_the_published_percentages_are_those_of_the_published_table(
    twenty_four: Comparison, metric: str, shape: str, stack: str, percent: float
) -> None:
    (grid,) = (one for one in grids(twenty_four) if one.metric == metric)
    assert (grid.down, grid.across) == ("optimizations", "shape")
    places = 0.05 if isinstance(percent, float) else 0.5
    assert 100 * changes(grid)[shape, stack] == pytest.approx(percent, abs=places)


def test_a_field_of_the_published_table_by_hand(twenty_four: Comparison) -> None:
    (grid,) = (one for one in grids(twenty_four) if one.metric == "step_seconds")
    field = grid.fields[STACKS.index("float16")][SHAPES.index("layers x2")]
    assert field is not None
    assert field.change == pytest.approx(265.74 / 239.97 - 1)
    assert field.column_change == pytest.approx(265.74 / 424.55 - 1)
    assert field.deviation == pytest.approx((265.74 - 424.55 - 157.77 + 239.97) / 239.97)
    assert [one.deviation for row in grid.fields[:1] for one in row if one] == [None] * 4


def test_rows_of_one_seed_have_figures_and_no_intervals(twenty_four: Comparison) -> None:
    found = of(twenty_four, "step_seconds")
    assert len(found.deviations) == 15
    assert not found.bounded
    assert all(one.points.interval is None and one.ratio.interval is None for one in found.deviations)
    (row,) = (one for one in found.deviations if one.changes == (("shape", "layers x2"), ("optimizations", "float16")))
    assert row.ratio.value == pytest.approx(265.74 * 239.97 / (424.55 * 157.77) - 1)
    assert len(next(iter(factor_effects(twenty_four))).effects) == 3 + 5 + 15


def test_a_stack_is_compared_with_its_parts() -> None:
    comparison = analyse(record(seeds=3, between=0.005))
    (peak,) = of(comparison, "tensors_peak_bytes").deviations
    parts = [MADE[name][0] for name in TREATMENTS[:3]]
    assert set(peak.singles) == set(TREATMENTS[:3])
    assert peak.change == pytest.approx(0.49 - 1, abs=1e-6)
    assert peak.expected == pytest.approx(sum(parts) - 3, abs=1e-6)
    assert peak.points.value == pytest.approx(0.49 - 1 - sum(parts) + 3, abs=1e-6)
    assert peak.ratio.value == pytest.approx(0.49 / (parts[0] * parts[1] * parts[2]) - 1, abs=1e-6)
    (step,) = of(comparison, "step_seconds").deviations
    assert step.ratio.interval is not None
    low, high = step.ratio.interval
    assert low < 1.002 / (0.88 * 1.65 * 1.24) - 1 < high
    assert factor_effects(comparison) == ()
    assert grids(comparison) == ()


def test_savings_that_multiply_deviate_in_points_and_not_as_a_ratio() -> None:
    halves = compared(
        factorial({"a": ("off", "on"), "b": ("off", "on")}),
        lambda row: (0.5 ** list(row.values()).count("on"), 1.0, 1.0),
    )
    (found,) = of(halves, "tensors_peak_bytes").deviations
    assert (found.change, found.expected) == (pytest.approx(-0.75), pytest.approx(-1.0))
    assert found.points.value == pytest.approx(0.25)
    assert found.ratio.value == pytest.approx(0.0)


def test_a_ladder_with_each_rung_alone_has_a_deviation_at_each_height() -> None:
    heights = [(), ("x",), ("x", "y"), ("x", "y", "z"), ("y",), ("z",)]
    rows = [{key: "on" if key in some else "off" for key in ("x", "y", "z")} for some in heights]
    made = {"x": 0.8, "y": 0.7, "z": 1.5}

    def figures(row: Mapping[str, str]) -> tuple[float, float, float]:
        size = 1.0
        for key, level in row.items():
            size *= made[key] if level == "on" else 1.0
        return size, size, 1.0

    found = of(compared(rows, figures), "tensors_peak_bytes")
    assert [len(one.singles) for one in found.deviations] == [2, 3]
    assert [one.points.value for one in found.deviations] == [
        pytest.approx(0.56 - 1 + 0.2 + 0.3, abs=1e-6),
        pytest.approx(0.84 - 1 + 0.2 + 0.3 - 0.5, abs=1e-6),
    ]
    without = [row for row, some in zip(rows, heights, strict=True) if some not in (("y",), ("z",))]
    assert deviations(compared(without, figures)) == ()


def test_a_placebo_is_a_level_of_its_own_and_parts_may_be_stacks() -> None:
    levels = ("none", "lion+bf16", "placebo: a+b")
    comparison = compared(factorial({"optimizations": levels, "n": ("1", "2")}), lambda _: (1.0, 1.0, 1.0))
    found = {one.changes: one.singles for one in of(comparison, "tensors_peak_bytes").deviations}
    assert found == {
        (("optimizations", level), ("n", "2")): ("optimizations=none, n=2", f"optimizations={level}, n=1")
        for level in levels[1:]
    }


def test_the_parts_of_a_stack_sum_to_what_is_expected() -> None:
    for one in deviations(analyse(record(seeds=3))):
        for row in one.deviations:
            assert len(row.parts) == len(row.singles)
            assert sum(row.parts) == pytest.approx(row.expected)
    whole = of(analyse(record(seeds=3)), "tensors_peak_bytes").deviations[0]
    assert dict(zip(whole.singles, whole.parts, strict=True)) == pytest.approx(
        {name: MADE[name][0] - 1 for name in whole.singles}, abs=1e-4
    )


def test_the_deviation_of_a_disturbed_row_is_no_surer_than_the_row() -> None:
    calm, stack = record(seeds=3, between=0.005), TREATMENTS[4]
    busy = {0: 0.93, 1: 1.0, 2: 1.07}
    cells = tuple(slowed(one, busy[one.cell.seed]) if one.cell.treatment == stack else one for one in calm.cells)
    widths = {}
    for name, made in (("calm", calm), ("busy", calm.model_copy(update={"cells": cells}))):
        comparison = analyse(made)
        row = next(one for one in comparison.rows if one.treatment == stack).effects["step_seconds"]
        (found,) = of(comparison, "step_seconds").deviations
        assert found.change == pytest.approx(row.change)
        widths[name] = (width(row.interval), width(found.points.interval))
    assert widths["busy"][0] > 5 * widths["calm"][0]
    assert widths["busy"][1] > 0.95 * widths["busy"][0], "points follow a tangent, so they may be a little narrower"
    assert widths["calm"][1] < 0.1


def slowed(one: CellResult, times: float) -> CellResult:
    """Return a cell whose steps took this many times as long."""
    blocks = [
        block.model_copy(update={"median_step_seconds": times * block.median_step_seconds})
        for block in one.result.blocks
    ]
    return one.model_copy(update={"result": one.result.model_copy(update={"blocks": tuple(blocks)})})


def width(interval: tuple[float, float] | None) -> float:
    assert interval is not None
    return interval[1] - interval[0]


VARY = {"model.n_layer": [2, 4], "training.weight_decay": [0.1, 0.2]}


def effect(shallow: float, deep: float) -> Comparison:
    """Losses in which a larger weight decay changes the loss by other amounts at each depth."""

    def of(levels: Mapping[str, str]) -> Figures:
        is_deep, decayed = levels["model.n_layer"] == "4", levels["training.weight_decay"] == "0.2"
        return 1, 1, 2.4 - 0.3 * is_deep + decayed * (deep if is_deep else shallow)

    return analyse(factorial_record(VARY, of))


def test_an_effect_that_changes_sign_is_found_with_its_sizes() -> None:
    (found,) = sign_changes(effect(-0.1, 0.1))
    assert (found.metric.name, found.factor, found.level, found.control) == (
        "val_loss", "training.weight_decay", "0.2", "0.1",
    )  # fmt: skip
    assert (found.other, found.lowers_at, found.raises_at, found.rest) == ("model.n_layer", "2", "4", ())
    assert found.lowered.fraction == pytest.approx(-0.1 / 2.4, abs=0.003)
    assert found.raised.fraction == pytest.approx(0.1 / 2.1, abs=0.003)


@pytest.mark.parametrize("sizes", [(-0.1, -0.05), (-0.1, 0.0), (0.0, 0.0), (0.1, 0.2)])
def test_effects_of_one_sign_or_too_small_to_tell_are_not(sizes: tuple[float, float]) -> None:
    assert sign_changes(effect(*sizes)) == ()


def test_a_study_with_one_factor_has_none() -> None:
    assert sign_changes(analyse(record(seeds=3))) == ()
