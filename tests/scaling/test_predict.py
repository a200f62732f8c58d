"""Questions to laws: what follows from what, which answers are marked or refused, and what is missing."""

from dataclasses import replace

import numpy as np
import pytest

from assay.api import scaling
from assay.api.scaling_results import LawFit
from assay.errors import UsageError
from assay.scaling.fitted import fit_law
from assay.scaling.laws import HOFFMANN
from support.laws import drawn, known_law

TRUE = known_law("hoffmann")


@pytest.fixture(scope="module")
def found() -> LawFit:
    return LawFit(**vars(fit_law(drawn(TRUE, 60, 0, 0.005), HOFFMANN, draws=60, seed=0)))


def test_the_third_quantity_follows_and_compute_alone_asks_for_the_optimum() -> None:
    both = scaling.predict("hoffmann", parameters=1e9, tokens=2e10)
    by_size = scaling.predict("hoffmann", parameters=1e9, flops=1.2e20)
    by_data = scaling.predict("hoffmann", tokens=2e10, flops=1.2e20)
    assert both.loss[0] == pytest.approx(float(TRUE.loss(1e9, 2e10)))
    assert by_size.loss == pytest.approx(both.loss)
    assert by_data.loss == pytest.approx(both.loss)
    best = scaling.predict("hoffmann", flops=1.2e20)
    assert best.loss[0] < both.loss[0]
    assert best.loss[0] == pytest.approx(float(TRUE.loss(*TRUE.optimum(1.2e20))))
    assert np.isnan(best.low[0])


def test_intervals_hold_the_truth_and_far_answers_are_marked_and_refused(found: LawFit) -> None:
    near = scaling.predict(found, parameters=np.array([1e8, 1e9]), tokens=2e10)
    assert np.all((near.low < TRUE.loss([1e8, 1e9], 2e10)) & (TRUE.loss([1e8, 1e9], 2e10) < near.high))
    most = float(found.fit.points.flops.max())
    ranges = [scaling.predict(found, flops=times * most) for times in (1, 50, 101, 9_999)]
    assert [one.marked for one in ranges] == [[False], [False], [True], [True]]
    assert ranges[1].beyond == pytest.approx([50])
    with pytest.raises(UsageError, match="20,000 times beyond the fitted points"):
        scaling.predict(found, flops=20_000 * most)
    assert scaling.predict(found, flops=20_000 * most, far=True).marked == [True]
    wider = replace(found, extrapolation=None)
    assert scaling.predict(wider, flops=50 * most).low[0] >= ranges[1].low[0]


def test_an_answer_has_a_frame_and_a_report(found: LawFit) -> None:
    answer = scaling.predict(found, parameters=[1e8, 1e9], tokens=2e10)
    assert list(answer.to_frame()) == ["parameters", "tokens", "loss", "low", "high", "beyond", "marked"]
    assert "95 % interval" in answer._repr_html_()


def test_a_fit_has_a_frame_a_figure_and_a_report(found: LawFit) -> None:
    frame = found.to_frame()
    assert list(frame.index) == ["E", "A", "B", "α", "β"]
    assert (frame["low"] <= frame["fitted"]).all()
    assert len(found.plot().axes) == 2
    assert "fitted to 60 points" in found._repr_html_()
    assert repr(found).startswith("<hoffmann of 60 points: E=")


@pytest.mark.parametrize("loss", [np.nan, -1.0, np.inf, 0.0])
def test_points_from_a_program_are_checked_too(found: LawFit, loss: float) -> None:
    losses = found.fit.points.loss.copy()
    losses[3] = loss
    with pytest.raises(UsageError, match="loss that is not positive"):
        scaling.fit(replace(found.fit.points, loss=losses))


@pytest.mark.parametrize(
    ("law", "asked", "says"),
    [
        ("hoffmann", {"parameters": 1e9}, "the law hoffmann needs tokens"),
        ("hoffmann", {}, "the law hoffmann needs parameters and tokens"),
        ("hoffmann", {"parameters": 1e9, "tokens": 1e9, "flops": 1e20}, "give two of parameters, tokens and flops"),
        ("hoffmann", {"parameters": -1.0, "tokens": 1e9}, "parameters=-1 is not possible"),
        ("hoffmann", {"flops": float("nan")}, "flops=nan is not possible"),
        ("hoffmann", {"flops": float("inf")}, "flops=inf is not possible"),
        ("kaplan-joint", {"flops": 0.0}, "flops=0 is not possible"),
        ("kaplan-steps", {"parameters": 1e9}, "the law kaplan-steps needs min_steps"),
        ("repeated", {"flops": 1e20}, "the law repeated has no best size"),
        ("saturating", {"flops": 1e20}, "the law saturating has no published constants; fit it"),
        ("newton", {"flops": 1e20}, "there is no law 'newton'"),
        ("hoffmann", {"parameters": 1e9, "tokens": 1e9, "min_steps": 1e3}, "does not use min_steps"),
        ("repeated", {"parameters": 1e9, "tokens": 1e9, "unique_tokens": 1e10}, "cannot be more of them"),
    ],
)
def test_a_question_that_has_no_answer_is_a_sentence(law: str, asked: dict[str, float], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        scaling.predict(law, **asked)
