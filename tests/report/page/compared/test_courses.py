from itertools import accumulate
from typing import Any

import pytest

from assay.analysis.comparison import Comparison, analyse
from assay.records.study import BASELINE, CellResult, ComparisonRecord, Curve, Protocol
from assay.report.page.compared.courses import by_seconds, by_step, distances, seconds
from assay.report.page.panels import MOST, alone
from support.comparisons import TREATMENTS, record
from support.drawn import words


def with_curves(made: ComparisonRecord, curve: Any) -> Comparison:
    """A comparison whose cells have other curves."""
    cells = tuple(one.model_copy(update={"curve": curve(one)}) for one in made.cells)
    return analyse(made.model_copy(update={"cells": cells}))


def test_each_row_has_a_panel_with_the_baseline_and_equal_axes() -> None:
    panels = by_step(analyse(record()))
    assert [panel.title for panel in panels] == list(TREATMENTS)
    axes = [alone(panel).axes[0] for panel in panels]
    assert len({(axis.get_xlim(), axis.get_ylim()) for axis in axes}) == 1
    colours = [{line.get_color() for line in axis.lines} for axis in axes]
    assert len(set.intersection(*colours)) == 1
    assert len(set.union(*colours)) == 1 + len(TREATMENTS)


def test_a_slower_row_takes_more_seconds() -> None:
    ends = [max(line.get_xdata()[-1] for line in alone(one).axes[0].lines[4:]) for one in by_seconds(analyse(record()))]
    assert ends[1] > 1.4 * ends[0], "bf16_mixed takes 1.65 times the baseline's time, sdpa_attention 0.88 times"


def test_seconds_are_those_recorded_or_follow_from_the_median() -> None:
    one = record().cells[0]
    assert seconds(one) == list(accumulate(one.curve.step_seconds))
    older = one.model_copy(update={"curve": one.curve.model_copy(update={"step_seconds": ()})})
    spread = one.result.step_seconds
    assert spread is not None
    assert seconds(older)[-1] == pytest.approx(60 * spread.median)


def test_a_study_without_times_has_no_losses_by_seconds() -> None:
    untimed = Protocol(blocks=0, resident=1, available_bytes=10**9)
    assert by_seconds(analyse(record(protocol=untimed))) == ()
    assert by_step(analyse(record(protocol=untimed)))


def test_a_row_that_never_differs_has_no_distance() -> None:
    found = [panel.title for panel in distances(analyse(record()))]
    assert TREATMENTS[2] not in found
    assert TREATMENTS[1] in found
    assert distances(analyse(record(treatments=TREATMENTS[2:3]))) == ()


def test_losses_that_were_not_finite_are_left_out() -> None:
    broken = Curve(train_loss=(3.0, None, float("inf"), 2.0), evaluations=((4, None),))
    found = with_curves(record(treatments=TREATMENTS[:1]), lambda one: broken)
    assert len(by_step(found)) == 1
    assert words(by_step(found))
    assert distances(found) == ()


def test_distances_within_a_decade_lie_between_two_named_powers() -> None:
    found = with_curves(
        record(treatments=TREATMENTS[:1]),
        lambda one: Curve(train_loss=(3.0, 2.5 if one.cell.treatment == BASELINE else 2.52)),
    )
    text = words(distances(found))
    assert "10⁻²" in text
    assert "10⁻¹" in text


def test_a_diverging_row_leaves_its_panel_and_squeezes_no_other() -> None:
    high = Curve(train_loss=tuple(3.0 + 1e6 * step for step in range(60)))
    made = record(treatments=TREATMENTS[:2])
    found = with_curves(made, lambda one: high if one.cell.treatment == TREATMENTS[1] else one.curve)
    assert alone(by_step(found)[0]).axes[0].get_ylim()[1] < 10


def test_long_curves_are_thinned() -> None:
    long = Curve(train_loss=tuple(3 - n / 20_000 + n % 7 / 100 for n in range(20_000)))
    found = with_curves(record(treatments=TREATMENTS[:1], seeds=1), lambda one: long)
    (panel,) = by_step(found)
    assert all(len(line.get_xdata()) <= 120 for line in alone(panel).axes[0].lines)


def test_not_every_row_of_a_large_study_has_a_panel() -> None:
    names = tuple(f"gradient_accumulation:micro_batches={2**n}" for n in range(1, 4)) + TREATMENTS[:3]
    factors = dict.fromkeys((BASELINE, "baseline (again)", *names), (1.0, 1.0, 1.0, 1e-3))
    assert len(by_step(analyse(record(treatments=names, factors=factors, seeds=1)))) == min(MOST, len(names))


def test_rows_whose_times_are_far_apart_share_a_logarithmic_axis() -> None:
    slow = TREATMENTS[:2]

    def curve(one: CellResult) -> Curve:
        step = 5.0 if one.cell.treatment == slow[0] else 0.01
        return Curve(train_loss=(3.0, 2.5, 2.0), step_seconds=(step,) * 3)

    axes = [alone(panel).axes[0] for panel in by_seconds(with_curves(record(treatments=slow), curve))]
    assert {axis.get_xscale() for axis in axes} == {"log"}
    assert all(axis.get_xlim()[0] == pytest.approx(0.01) for axis in axes)
    assert not any("$" in one.get_text() for axis in axes for one in axis.get_xticklabels())
    assert alone(by_seconds(analyse(record()))[0]).axes[0].get_xscale() == "linear"
