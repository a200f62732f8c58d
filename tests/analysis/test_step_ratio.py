"""The ratio of two times: its interval is that of a paired t-test over processes, and only a whole one fails."""

import math

import numpy as np
import pytest
from scipy import stats

from assay.analysis.step_ratio import GateTimes, step_ratio
from assay.launch.turns import TimedPair
from assay.records.status import Exit
from assay.records.timing import Block
from assay.report import view


def block(seconds: float, others: float = 0.0) -> Block:
    return Block(steps=4, seconds=9.0, median_step_seconds=seconds, tokens=0, others_seconds=others, cores=2)


def pairs(ratios: list[float], spread: float = 0.1) -> tuple[TimedPair, ...]:
    """Pairs with these ratios, each of five rounds whose blocks of both processes drift together."""
    rng = np.random.default_rng(0)
    drift = rng.normal(0, spread, (len(ratios), 5))
    return tuple(
        TimedPair("cpu", tuple((block(math.exp(one)), block(ratio * math.exp(one))) for one in drift[place]))
        for place, ratio in enumerate(ratios)
    )


@pytest.mark.parametrize("count", [3, 5, 9])
def test_the_interval_is_that_of_a_paired_t_test_over_processes(count: int) -> None:
    ratios = [1.1 + 0.02 * math.sin(7 * place) for place in range(count)]
    found = step_ratio("a.py:build", pairs(ratios))
    logs = [math.log(one) for one in ratios]
    wanted = stats.ttest_1samp(logs, 0.0).confidence_interval(0.95)
    assert found.ratio == pytest.approx(math.exp(np.mean(logs)))
    assert found.interval == pytest.approx((math.exp(wanted.low), math.exp(wanted.high)))
    assert found.by_pair == pytest.approx(ratios)


def test_disturbed_rounds_do_not_count_where_three_others_do() -> None:
    clean = pairs([1.1, 1.12, 1.13])
    noisy = tuple(TimedPair("cpu", (*one.rounds, (block(1.0), block(9.0, others=5.0)))) for one in clean)
    found = step_ratio("a.py:build", noisy)
    assert found.ratio == pytest.approx(step_ratio("a.py:build", clean).ratio)
    assert found.disturbed == (3, 18)


@pytest.mark.parametrize(
    ("at_most", "code", "said"),
    [
        (None, Exit.DONE, "interval 1.095 to 1.145."),
        (1.05, Exit.UNMET, "All of it is above 1.05."),
        (1.12, Exit.DONE, "It contains 1.12, so this does not fail"),
        (1.3, Exit.DONE, "It is not above 1.3."),
    ],
)
def test_only_an_interval_that_is_wholly_above_the_limit_fails(at_most: float | None, code: Exit, said: str) -> None:
    answer = GateTimes("main (a1b2c3d)", (step_ratio("a.py:build", pairs([1.11, 1.12, 1.13])),), at_most)
    assert answer.exit_code is code
    (text,) = map(str, view(answer).blocks())
    assert "a.py:build on cpu takes 1.120 times as long as at main (a1b2c3d), 95 % interval 1.095 to 1.145." in text
    assert said in text
    values = view(answer).values()
    assert values["exit_code"] == code
    assert values["steps"][0]["failed"] is (code is Exit.UNMET)
    assert len(values["steps"][0]["pairs"]) == 3


def test_an_interval_with_one_shows_no_difference_and_disturbed_rounds_are_said() -> None:
    even = tuple(TimedPair("cpu", ((block(1.0), block(one, others=5.0)),) * 3) for one in (0.99, 1.0, 1.02))
    sentence, caution = map(str, view(GateTimes("main", (step_ratio("a.py:build", even),))).blocks())
    assert "No difference is shown" in sentence
    assert "disturbed 9 of 9 rounds" in caution
