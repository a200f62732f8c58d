"""Jitter of equal work, on a clock that the test moves."""

from itertools import accumulate, chain, repeat

import pytest

from assay.hardware.host import jitter


def clock(seconds: list[float]) -> list[float]:
    """Readings of a clock before and after pieces of work that take so long."""
    ends = list(accumulate(seconds))
    return list(chain.from_iterable((end - one, end) for one, end in zip(seconds, ends, strict=True)))


@pytest.mark.parametrize(("slow", "expected"), [(0, 0.0), (4, 0.0), (40, 2.0)])
def test_it_is_the_share_by_which_the_slowest_twentieth_is_longer(slow: int, expected: float) -> None:
    seconds = [0.001] * (400 - slow) + [0.003] * slow
    readings = iter(clock(seconds))
    assert jitter(lambda: None, readings.__next__) == pytest.approx(expected)


def test_real_work_has_a_jitter_that_is_no_less_than_nothing() -> None:
    calls = iter(repeat(None, 400))
    assert jitter(lambda: next(calls)) >= 0
    assert next(calls, "all done") == "all done"
