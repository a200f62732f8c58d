"""Optima without a law of loss: parabolas at equal compute, and the envelope of training curves."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from assay.api import scaling
from assay.errors import UsageError
from assay.report import view
from assay.scaling.approaches import TrainingCurve, _whole_trunks, budgets, envelope, isoflop
from assay.scaling.points import Points
from support.laws import known_law

TRUE = known_law("hoffmann")
EXPONENT = 0.3658 / (0.3478 + 0.3658)
BUDGETS = np.array([3e18, 1e19, 3e19, 1e20])


def made(noise: float = 0.0, shift: float = 0.0) -> Points:
    """Seven sizes at each budget around the optimum; `shift` moves those of the last budget, in log N."""
    chance = np.random.default_rng(0)
    places = np.linspace(-1.2, 1.2, 7)
    sizes = np.array([TRUE.optimum(flops)[0] * np.exp(places) for flops in BUDGETS])
    sizes[-1] *= np.exp(shift)
    flops = np.repeat(BUDGETS, 7)
    n, d = sizes.ravel(), flops / 6 / sizes.ravel()
    return Points(n, d, TRUE.loss(n, d) * np.exp(noise * chance.standard_normal(len(n))))


def test_the_exponents_of_parabolas_are_those_of_the_law() -> None:
    found = isoflop(made())
    assert [one.flops for one in found.parabolas] == pytest.approx(BUDGETS)
    assert found.optima.size.exponent == pytest.approx(EXPONENT, abs=1e-3)
    assert found.optima.data.exponent == pytest.approx(1 - EXPONENT, abs=1e-3)
    size, tokens = found.optima.at(3e19)
    assert 6 * size * tokens == pytest.approx(3e19)
    assert size == pytest.approx(TRUE.optimum(3e19)[0], rel=0.03)
    assert tokens == pytest.approx(found.optima.data.at(3e19))
    assert not found.optima.warnings


def test_intervals_hold_the_exponent_and_repeat() -> None:
    found = isoflop(made(0.003))
    assert found.optima.size.interval is not None
    low, high = found.optima.size.interval
    assert low < EXPONENT < high
    assert found.optima.data.interval == pytest.approx((1 - high, 1 - low))
    assert isoflop(made(0.003)).optima.size == found.optima.size


def test_a_trunk_is_drawn_with_its_runs_of_all_budgets() -> None:
    trunks = np.tile(np.arange(7.0), 4)
    groups = budgets(replace(made(), trunk=trunks))
    drawn = _whole_trunks(groups, np.random.default_rng(0))
    times = [Counter([] if one.trunk is None else one.trunk.tolist()) for one in drawn]
    assert all(one == times[0] for one in times)
    assert sum(times[0].values()) == 7
    assert max(times[0].values()) > 1
    assert isoflop(replace(made(0.003), trunk=trunks)).optima.size != isoflop(made(0.003)).optima.size


def test_a_minimum_outside_of_the_sizes_is_named_and_does_not_count() -> None:
    found = isoflop(made(shift=2.5))
    assert len(found.optima.flops) == 3
    assert found.optima.warnings == (
        "At 1e+20 FLOPs the minimum is outside of the sizes: add smaller models. It does not count.",
    )


def test_too_few_budgets_are_a_sentence() -> None:
    one = made().where(np.arange(7))
    with pytest.raises(UsageError, match="1 of 1 budgets with three sizes or more has a lowest loss"):
        isoflop(one)


def test_runs_that_share_no_budget_are_a_sentence() -> None:
    with pytest.raises(UsageError, match="no budget has three sizes"):
        isoflop(made().where(np.array([0, 7, 14])))


def test_draws_without_an_optimum_are_counted() -> None:
    """With four sizes at each budget, some draws have fewer than three of them."""
    few = made(0.02).where(np.flatnonzero(np.arange(28) % 7 % 2 == 0))
    found = isoflop(few, draws=100)
    assert 0 < found.optima.draws < 100
    assert f"{100 - found.optima.draws} of 100 draws had no optimum" in found.optima.warnings[-1]


def test_two_budgets_of_three_sizes_have_no_interval() -> None:
    """Three sizes determine a parabola, and two budgets a line, so that every draw is the same."""
    few = made(0.001).where(np.flatnonzero(np.isin(np.arange(28) % 7, (1, 3, 5)) & (np.arange(28) >= 14)))
    found = isoflop(few, draws=1000)
    assert found.optima.size.interval is None
    assert found.optima.data.interval is None
    assert "have no interval, because all draws are the same" in found.optima.warnings[-1]
    assert "–" in str(list(view(found).blocks()))
    assert isoflop(few, draws=100).optima.warnings[-1].endswith("draws are left. More runs would give one.")


def test_the_published_points_have_the_published_exponent(shared: Callable[[str], Path]) -> None:
    """Hoffmann et al. 2022, table 2: 0.49, with 0.462 and 0.534 as the 10th and 90th percentiles."""
    found = scaling.isoflop(shared("chinchilla/hoffmann_figure4_extracted.csv"), draws=50)
    assert 0.462 < found.optima.size.exponent < 0.534


def curves(count: int) -> list[TrainingCurve]:
    sizes = np.geomspace(1e7, 1e10, count)
    seen = [np.geomspace(size, 400 * size, 100) for size in sizes]
    return [TrainingCurve(float(n), d, TRUE.loss(n, d)) for n, d in zip(sizes, seen, strict=True)]


def test_the_exponents_of_the_envelope_are_those_of_the_law() -> None:
    found = envelope(curves(30), draws=30)
    assert found.optima.size.exponent == pytest.approx(EXPONENT, abs=0.01)
    assert found.optima.size.interval is not None
    low, high = found.optima.size.interval
    assert low < EXPONENT < high
    assert found.optima.at(1e20)[0] == pytest.approx(TRUE.optimum(1e20)[0], rel=0.1)
    assert found.loss == pytest.approx([float(TRUE.loss(*TRUE.optimum(flops))) for flops in found.flops], rel=0.5)


def test_the_lowest_loss_is_that_of_the_best_curve() -> None:
    some = curves(6)
    found = envelope(some, draws=2)
    place = len(found.flops) // 2
    each = [np.interp(found.flops[place], one.flops, one.loss, left=np.inf, right=np.inf) for one in some]
    assert found.loss[place] == pytest.approx(min(each), rel=1e-3)
    assert found.parameters[place] == some[int(np.argmin(each))].parameters
    assert "of the computes count" in found.optima.warnings[0]


def test_curves_are_read_by_run_or_by_size(tmp_path: Path) -> None:
    some = curves(8)
    rows = [f"{one.parameters},{d},{loss}" for one in some for d, loss in zip(one.tokens, one.loss, strict=True)]
    path = tmp_path / "curves.csv"
    path.write_text("\n".join(["parameters,tokens,loss", *reversed(rows)]), encoding="utf-8")
    assert scaling.envelope(path, draws=5).optima.size == envelope(some[::-1], 5).optima.size
    named = [f"{row},{'a' if number % 2 else 'b'}" for number, row in enumerate(rows)]
    path.write_text("\n".join(["parameters,tokens,loss,run", *named]), encoding="utf-8")
    with pytest.raises(UsageError, match="run b has several sizes"):
        scaling.envelope(path)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (curves(2), "the curves are of 2 sizes"),
        (
            [*curves(3), TrainingCurve(1e8, np.array([2.0, 1.0]), np.array([3.0, 3.0]))],
            "the curve of 100M parameters do not increase",
        ),
        (
            [TrainingCurve(1e8, np.array([1.0, 2.0]), np.array([3.0, np.nan]))],
            "the curve of 100M parameters has a size, tokens or a loss",
        ),
        (
            [TrainingCurve(1e8, np.array([1.0]), np.array([3.0]))],
            "the curve of 100M parameters needs two or more tokens",
        ),
    ],
)
def test_a_file_without_curves_is_a_sentence(made: list[TrainingCurve], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        envelope(made)
