"""Predicted times of steps, against those of an H200 and of a published ladder, within the limits of the page."""

import pytest


def test_judged_steps_are_near_and_in_order_and_compiled_ones_within_their_bound() -> None:
    from predicted_times import failures, ladder, rows  # type: ignore[import-not-found]

    found = rows()
    assert [sum(one.kind == kind for one in found) for kind in ("judged", "fitted", "compiled")] == [33, 4, 5]
    assert list(failures(found, ladder())) == []


def test_a_race_that_took_no_part_in_a_fit_is_within_its_margin() -> None:
    from predicted_times import races

    assert [one.name for one in races() if abs(one.error) > one.margin] == []


def test_the_constants_are_those_that_make_their_rows_exact() -> None:
    from assay.estimator.timing.gpu_step import MODULES, RECOMPUTED_SECONDS
    from predicted_times import fitted

    assert fitted() == pytest.approx((MODULES, RECOMPUTED_SECONDS), rel=0.01)


def test_a_figure_beyond_a_limit_is_named() -> None:
    from predicted_times import Row, Rung, failures

    def row(name: str, measured: float, predicted: float, bound: str = "device") -> Row:
        return Row(name, "one", measured, predicted, 0.2, bound, "judged")

    swapped = [row("fast", 1.0, 1.1), row("slow", 1.4, 1.05)]
    flat = [Rung("first", 1.0, 1.0), Rung("second", 1.0, 1.0)]
    told = list(failures(swapped, flat))
    assert "not in order: fast and slow" in told
    assert any("slow is beyond its margin of 20%" in one for one in told)
    assert any(one.startswith("the median error") for one in told)
    large = [Rung("first", 1.0, 1.0), Rung("second", 2.4, 1.5)]
    assert list(failures([row("right", 1.0, 1.0)], large)) == [
        "second gained × 2.40, predicted × 1.50",
        "the whole ladder gained × 2.40, predicted × 1.50",
    ]
    small = [Rung("first", 1.0, 1.0), Rung("second", 1.0, 1.2)]
    assert "second gained × 1.00, predicted × 1.20" in list(failures([row("right", 1.0, 1.0)], small))
