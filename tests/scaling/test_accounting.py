"""FLOPs that contradict 6·N·D: how far, how by size, and what an answer costs then."""

from dataclasses import replace

import numpy as np
import pytest

from assay.api import scaling
from assay.scaling.accounting import PLAIN, Accounting, accounting, spent_flops
from assay.scaling.asking.frontier import CountedMinimum, minimum
from assay.scaling.points import Points, planned
from assay.scaling.published import BESIROGLU, FRONTIERS

SIZES, RATIOS = (3e7, 1e8, 3e8, 1e9), (3, 10, 30, 100, 300)


def points(factor: float, power: float = 0.0) -> Points:
    """Points of a published law, whose FLOPs are some times 6·N·D, with another factor for each size."""
    rows = np.array([(size, size * ratio) for size in SIZES for ratio in RATIOS])
    noise = 1 + 0.003 * ((np.arange(len(rows)) * 7) % 5 - 2)
    found = planned(parameters=rows[:, 0], tokens=rows[:, 1])
    counted = factor * (rows[:, 0] / 1e8) ** power * 6 * rows[:, 0] * rows[:, 1]
    return replace(found, loss=BESIROGLU.loss(rows[:, 0], rows[:, 1]) * noise, counted_flops=counted)


@pytest.mark.parametrize(
    ("factor", "plain"), [(1.0, True), (1.029, True), (0.971, True), (1.031, False), (0.969, False)]
)
def test_flops_contradict_6nd_from_3_percent_on(factor: float, plain: bool) -> None:
    found = accounting(points(factor))
    assert found.plain is plain
    assert bool(found.warning) is not plain


def test_points_without_flops_of_their_own_contradict_nothing() -> None:
    assert accounting(replace(points(1.67), counted_flops=None)) is PLAIN


def test_the_factor_and_its_trend_over_size_are_said() -> None:
    flat, falling, growing = (accounting(points(1.67, power)) for power in (0.0, -0.1, 0.1))
    assert "1.67 times 6·N·D, about the same at all sizes" in flat.warning
    assert "falls with size, from 1.88 at 30.0M to 1.33 at 1.00B parameters" in falling.warning
    assert "grows with size, from 1.48 at 30.0M to 2.1 at 1.00B parameters" in growing.warning
    assert falling.power == pytest.approx(-0.1)


@pytest.mark.parametrize("size", [1e6, 3e7, 2e8, 1e9, 1e12])
@pytest.mark.parametrize("power", [-0.5, 0.0, 0.3])
def test_size_tokens_and_flops_follow_from_each_other(size: float, power: float) -> None:
    found = accounting(points(2.0, power))
    flops = found.flops(size, 1e10)
    assert found.tokens(size, flops) == pytest.approx(1e10)
    assert found.parameters(1e10, flops) == pytest.approx(size)


def test_beyond_the_sizes_the_factor_is_that_of_the_nearest() -> None:
    found = accounting(points(1.67, -0.1))
    assert found.factor(1e12) == pytest.approx(found.factor(1e9))
    assert found.factor(1e3) == pytest.approx(found.factor(3e7))


@pytest.mark.parametrize("power", [0.0, -0.1])
def test_an_answer_costs_what_was_asked_and_no_other_size_is_better(power: float) -> None:
    counted = accounting(points(1.67, power))
    best = CountedMinimum(BESIROGLU, counted).at(1e20)
    assert float(counted.flops(best.parameters, best.tokens)) == pytest.approx(1e20)
    sizes = best.parameters * np.geomspace(0.5, 2, 201)
    losses = BESIROGLU.loss(sizes, counted.tokens(sizes, 1e20))
    assert best.loss is not None
    assert best.loss <= losses.min() * (1 + 1e-9)


def test_with_one_factor_the_optimum_is_that_of_the_compute_over_the_factor() -> None:
    counted = Accounting(1.67, 0.0, (1e7, 1e9), (1.67, 1.67))
    best, plain = CountedMinimum(BESIROGLU, counted).at(1.67e20), minimum(BESIROGLU).at(1e20)
    assert best.parameters == pytest.approx(plain.parameters, rel=1e-3)
    assert best.tokens == pytest.approx(plain.tokens, rel=1e-3)


def test_optimal_growth_and_predict_count_as_the_points_do() -> None:
    given = points(1.67, -0.1)
    counted = accounting(given)
    found = scaling.optimal(flops=1e20, points=given, tokens_per_parameter=100, inference_tokens=1e12)
    own, best = found.answers["your points"], found.answers["your points"].optimum
    assert best is not None
    assert own.overtrained is not None
    assert own.served is not None
    for one in (best, own.overtrained.model, own.served.model):
        assert float(counted.flops(one.parameters, one.tokens)) == pytest.approx(one.flops)
    assert best.flops == 1e20
    assert own.frontier.reach.most == pytest.approx(spent_flops(given).max())
    hoffmann = found.answers["Hoffmann 1"].optimum
    assert hoffmann is not None
    assert hoffmann == FRONTIERS["Hoffmann 1"].at(1e20)

    grown = scaling.growth(10, parameters=1e8, tokens=1e10, points=given).answers["your points"]
    assert grown.flops == pytest.approx(10 * float(counted.flops(1e8, 1e10)))

    law = scaling.fit(given, hold_out=False, draws=20)
    asked = scaling.predict(law, flops=1e20).points
    assert float(counted.flops(asked.parameters[0], asked.tokens[0])) == pytest.approx(1e20)
    asked = scaling.predict(law, flops=1e20, parameters=2e8).points
    assert float(counted.flops(2e8, asked.tokens[0])) == pytest.approx(1e20)


def test_isoflop_has_the_budgets_of_the_runs() -> None:
    """Budgets of equal counted FLOPs; their 6·N·D differ by size, so that none of them would have three sizes."""
    counted, rows = accounting(points(2.0, -0.3)), []
    for flops in (1e19, 1e20, 1e21):
        for size in (1e8, 2e8, 4e8, 8e8, 1.6e9, 3.2e9):
            tokens = float(counted.tokens(size, flops))
            rows.append((size, tokens, float(BESIROGLU.loss(size, tokens)), flops))
    columns = np.array(rows).T
    found = scaling.isoflop(Points(columns[0], columns[1], columns[2], counted_flops=columns[3]), draws=20)
    assert [one.flops for one in found.parabolas] == pytest.approx([1e19, 1e20, 1e21])
    assert any("times 6·N·D" in one for one in found.optima.warnings)
    size, tokens = found.optima.at(1e20)
    assert float(found.optima.accounting.flops(size, tokens)) == pytest.approx(1e20, rel=1e-6)
