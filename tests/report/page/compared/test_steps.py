import numpy as np

from assay.analysis.comparison import analyse
from assay.records.study import Curve, Protocol
from assay.report.page.compared.steps import steady, step_times
from assay.report.page.panels import alone
from support.comparisons import TREATMENTS, record
from support.drawn import words


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
