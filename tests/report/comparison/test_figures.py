"""Figures of a comparison: changes, memory, predictions, step times, and courses of losses."""

from itertools import accumulate
from typing import Any

import numpy as np
import pytest

from assay.analysis.comparison import Comparison, analyse
from assay.records.prediction import Predicted
from assay.records.study import BASELINE, CellResult, ComparisonRecord, Curve, Protocol
from assay.report.comparison.figures import (
    by_seconds,
    by_step,
    categories,
    changes,
    distances,
    memory,
    predictions,
    seconds,
    steady,
    step_times,
)
from assay.report.kit.drawing import MOST, alone
from support.comparisons import LABELS, TREATMENTS, record
from support.drawn import words


def test_changes_are_labelled_in_percent() -> None:
    text = words(changes(analyse(record())))
    for piece in ("sdpa_attention", "−28.0 %", "+64.8 %", "tensors, peak", "step time"):
        assert piece in text


def test_every_panel_has_every_row() -> None:
    panels = changes(analyse(record()))
    assert [panel.title for panel in panels] == ["tensors, peak", "process, peak", "step time"]
    assert {len(panel.names) for panel in panels} == {5}


def test_each_row_has_its_layers_on_one_scale() -> None:
    panels = memory(analyse(record()))
    assert [panel.title for panel in panels] == ["baseline", *LABELS]
    axes = [alone(panel).axes[0] for panel in panels]
    assert len({axis.get_ylim() for axis in axes}) == 1
    assert {len(axis.collections) for axis in axes} == {2}


def test_the_peak_its_instant_and_the_phases_are_named() -> None:
    text = words(memory(analyse(record()))[:1])
    assert "65.1 MiB in forward: aten.mm (head)" in text
    assert [name for name in ("forward", "backward", "update") if f"{name} " in f"{text} "] == [
        "forward",
        "backward",
        "update",
    ]


def test_the_measured_peak_is_a_line() -> None:
    (line,) = [one for one in alone(memory(analyse(record()))[0]).axes[0].lines if one.get_linestyle() == "--"]
    assert line.get_ydata()[0] == 65.0


def test_a_category_has_one_colour_although_a_row_lacks_it() -> None:
    made = analyse(record())
    assert categories(made) == ("weights", "saved for backward")
    assert categories(analyse(record(treatments=TREATMENTS[:1]))) == categories(made)


def test_older_records_have_no_timeline() -> None:
    older = {"predicted": Predicted(tensors_peak_bytes=10**6)}
    made = record(changes=dict.fromkeys(("baseline", "baseline (again)", *TREATMENTS), older))
    assert memory(analyse(made)) == ()
    assert categories(analyse(made)) == ()


def test_predictions_show_each_error_and_the_baseline() -> None:
    text = words(predictions(analyse(record())))
    assert text.count("+0.20 %") == 6
    assert "baseline" in text
    assert "predicted, MiB" in text


def test_every_row_has_a_ridge_on_one_axis() -> None:
    (panel,) = step_times(analyse(record()))
    assert len(panel.names) == 1 + len(TREATMENTS)
    axis = alone(panel).axes[0]
    medians = [line.get_xdata()[0] for line in axis.lines]
    assert np.allclose(medians, [52 * one for one in (1, 0.88, 1.65, 1.24, 1.05, 1.002)], rtol=0.02)
    assert axis.get_xlabel() == "ms"


def test_unsteady_steps_are_left_out() -> None:
    cells = record().of("baseline")
    assert steady(cells).max() < 0.1
    whole = [one.model_copy(update={"curve": one.curve.model_copy(update={"unsteady": ()})}) for one in cells]
    assert steady(whole).max() > 0.4


def test_slow_steps_beyond_the_axis_are_counted() -> None:
    made = record(treatments=TREATMENTS[:1], seeds=1)
    slow = Curve(step_seconds=(*[0.05] * 99, 9.0))
    cells = tuple(one.model_copy(update={"curve": slow}) for one in made.cells)
    assert words(step_times(analyse(made.model_copy(update={"cells": cells})))).count("1 ▸") == 2


def test_studies_and_records_without_times_have_no_distribution() -> None:
    assert step_times(analyse(record(protocol=Protocol(blocks=0, resident=1, available_bytes=1)))) == ()
    made = record(treatments=TREATMENTS[:1])
    older = tuple(one.model_copy(update={"curve": Curve(train_loss=(1.0,))}) for one in made.cells)
    assert step_times(analyse(made.model_copy(update={"cells": older}))) == ()


def with_curves(made: ComparisonRecord, curve: Any) -> Comparison:
    """A comparison whose cells have other curves."""
    cells = tuple(one.model_copy(update={"curve": curve(one)}) for one in made.cells)
    return analyse(made.model_copy(update={"cells": cells}))


def test_each_row_has_a_panel_with_the_baseline_and_equal_axes() -> None:
    panels = by_step(analyse(record()))
    assert [panel.title for panel in panels] == list(LABELS)
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
