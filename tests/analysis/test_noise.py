import pytest

from assay.analysis.effects import Effect
from assay.analysis.noise import Noise, Verdict


def effect(change: float, low: float | None = None, high: float | None = None) -> Effect:
    interval = None if low is None or high is None else (low, high)
    return Effect(change=change, interval=interval, pairs=10 if interval else 2)


QUIET = Noise(effects={"step_seconds": effect(0.001, -0.02, 0.022), "tensors_peak_bytes": effect(0.0)})
UNKNOWN = Noise(effects={})


def test_the_floor_is_the_far_end_of_the_interval() -> None:
    assert QUIET.floor("step_seconds") == pytest.approx(0.022)
    assert QUIET.floor("tensors_peak_bytes") == 0.0
    assert UNKNOWN.floor("step_seconds") is None


def test_the_floor_is_the_change_where_there_is_no_interval() -> None:
    assert Noise(effects={"step_seconds": effect(-0.2)}).floor("step_seconds") == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (effect(-0.12, -0.13, -0.11), Verdict.DIFFERS),
        (effect(0.30, 0.28, 0.32), Verdict.DIFFERS),
        (effect(0.05, -0.01, 0.11), Verdict.WITHIN_NOISE),  # the interval holds zero
        (effect(0.015, 0.010, 0.020), Verdict.WITHIN_NOISE),  # clear of zero, and no larger than nothing at all makes
        (effect(-0.0215, -0.03, -0.015), Verdict.WITHIN_NOISE),  # as large as the floor, on the other side
        (effect(0.5), Verdict.TOO_FEW),
        (effect(0.0), Verdict.EQUAL),
    ],
)
def test_verdicts_on_sampled_quantities(measured: Effect, verdict: Verdict) -> None:
    assert QUIET.judge_sampled("step_seconds", measured) is verdict


def test_without_a_floor_the_interval_alone_decides() -> None:
    assert UNKNOWN.judge_sampled("step_seconds", effect(0.001, 0.0005, 0.0015)) is Verdict.DIFFERS
    assert UNKNOWN.judge_sampled("step_seconds", effect(0.001, -0.0005, 0.0025)) is Verdict.WITHIN_NOISE


def test_verdicts_on_exact_quantities() -> None:
    restless = Noise(effects={"tensors_peak_bytes": effect(0.01)})
    assert QUIET.judge_exact("tensors_peak_bytes", effect(-0.0001)) is Verdict.DIFFERS
    assert QUIET.judge_exact("tensors_peak_bytes", effect(0.0)) is Verdict.EQUAL
    assert restless.judge_exact("tensors_peak_bytes", effect(0.005)) is Verdict.WITHIN_NOISE
    assert restless.judge_exact("tensors_peak_bytes", effect(0.05)) is Verdict.DIFFERS


def test_only_a_difference_is_distinguishable() -> None:
    assert [verdict for verdict in Verdict if verdict.distinguishable] == [Verdict.DIFFERS]
