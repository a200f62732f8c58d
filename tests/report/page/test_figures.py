import re

from assay.analysis.comparison import Comparison, analyse
from assay.records.study import BASELINE, Curve
from assay.report.page import inline
from assay.report.page.theme import DARK, LIGHT, series, variable
from support.comparisons import TREATMENTS, record


def words(svg: str) -> str:
    return " ".join(re.findall(r"<text[^>]*>([^<]*)</text>|<tspan[^>]*>([^<]*)</tspan>", svg).__str__().split())


def comparison() -> Comparison:
    return analyse(record())


def test_changes_are_labelled_in_percent() -> None:
    text = words(inline("changes", comparison()))
    for piece in ("sdpa_attention", "−28.0 %", "+64.8 %", "tensors, peak", "step time"):
        assert piece in text


def test_predictions_show_each_error_and_the_baseline() -> None:
    text = words(inline("predictions", comparison()))
    assert text.count("+0.20 %") == 6
    assert "baseline" in text
    assert "predicted, MiB" in text


def test_treatments_that_never_part_from_the_baseline_are_said_to() -> None:
    made = record(treatments=TREATMENTS[2:3])
    assert "no treatment differs from the baseline" in words(inline("losses", analyse(made)))


def test_losses_that_were_not_finite_are_left_out() -> None:
    made = record(treatments=TREATMENTS[:1])
    broken = Curve(train_loss=(3.0, None, float("inf"), 2.0), evaluations=((4, None),))
    cells = tuple(one.model_copy(update={"curve": broken}) for one in made.cells)
    assert "<svg" in inline("losses", analyse(made.model_copy(update={"cells": cells})))


def test_distances_within_a_decade_lie_between_two_named_powers() -> None:
    made = record(treatments=TREATMENTS[:1])
    cells = tuple(
        one.model_copy(update={"curve": Curve(train_loss=(3.0, 2.5 if one.cell.treatment == BASELINE else 2.52))})
        for one in made.cells
    )
    text = words(inline("losses", analyse(made.model_copy(update={"cells": cells}))))
    assert "10⁻²" in text
    assert "10⁻¹" in text


def test_long_curves_are_thinned() -> None:
    made = record(treatments=TREATMENTS[:1], seeds=1)
    cells = tuple(
        one.model_copy(update={"curve": Curve(train_loss=tuple(3 - n / 20_000 + n % 7 / 100 for n in range(20_000)))})
        for one in made.cells
    )
    assert len(inline("losses", analyse(made.model_copy(update={"cells": cells})))) < 60_000


def test_a_figure_is_the_same_every_time() -> None:
    assert inline("changes", comparison()) == inline("changes", comparison())


def test_the_baseline_keeps_its_colour_and_neighbours_differ() -> None:
    assert len(LIGHT) == len(DARK)
    names = [variable(number) for number in range(12)]
    assert names.count(names[0]) == 1
    assert all(series(number) != series(number + 1) for number in range(20))
