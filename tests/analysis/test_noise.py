import pytest

from assay.analysis.effects import Effect
from assay.analysis.noise import Verdict, judge_exact, judge_sampled


def effect(change: float, low: float | None = None, high: float | None = None, *, equal: bool = False) -> Effect:
    interval = None if low is None or high is None else (low, high)
    return Effect(change=change, interval=interval, pairs=10 if interval else 2, equal=equal)


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (effect(-0.12, -0.13, -0.11), Verdict.DIFFERS),
        (effect(0.30, 0.28, 0.32), Verdict.DIFFERS),
        (effect(0.001, 0.0005, 0.0015), Verdict.DIFFERS),
        (effect(0.05, -0.01, 0.11), Verdict.NOT_DISTINGUISHABLE),
        (effect(3.0, -0.5, 30.0), Verdict.NOT_DISTINGUISHABLE),
        (effect(0.5), Verdict.TOO_FEW),
        (effect(0.0, equal=True), Verdict.EQUAL),
        (effect(0.0, 0.0, 0.0, equal=True), Verdict.EQUAL),
        (effect(0.0), Verdict.TOO_FEW),  # two seeds that cancel
        (effect(0.0, -0.1, 0.1), Verdict.NOT_DISTINGUISHABLE),
    ],
)
def test_verdicts_on_sampled_quantities(measured: Effect, verdict: Verdict) -> None:
    assert judge_sampled(measured) is verdict


def test_the_same_run_is_never_said_to_differ() -> None:
    assert judge_sampled(effect(0.12, 0.11, 0.13), same=True) is Verdict.NOT_DISTINGUISHABLE
    assert judge_sampled(effect(0.0, equal=True), same=True) is Verdict.EQUAL


def test_verdicts_on_exact_quantities() -> None:
    still, restless = effect(0.0, equal=True), effect(0.01)
    assert judge_exact(effect(-0.0001), still) is Verdict.DIFFERS
    assert judge_exact(still, restless) is Verdict.EQUAL
    assert judge_exact(effect(0.0, -0.1, 0.1), still) is Verdict.DIFFERS  # seeds that cancel
    assert judge_exact(effect(0.005), restless) is Verdict.NOT_DISTINGUISHABLE
    assert judge_exact(effect(0.05), restless) is Verdict.DIFFERS
    assert judge_exact(effect(-0.0001), None) is Verdict.DIFFERS


def test_only_a_difference_is_distinguishable() -> None:
    assert [verdict for verdict in Verdict if verdict.distinguishable] == [Verdict.DIFFERS]


def test_an_interval_that_is_missing_for_a_reason_is_not_too_few() -> None:
    untold = Effect(change=0.1, interval=None, pairs=3, untold="a reason")
    assert judge_sampled(untold) is Verdict.UNTOLD
    assert judge_sampled(untold, same=True) is Verdict.NOT_DISTINGUISHABLE
