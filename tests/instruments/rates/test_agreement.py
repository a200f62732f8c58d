"""A time counts once a second trial confirms it."""

from itertools import chain, repeat

import psutil
import pytest

from assay.instruments.rates import agreement
from assay.instruments.rates.agreement import OthersShare, repeat_trial


def test_one_trial_is_not_enough_however_fast() -> None:
    found = iter([5.0, 1.0, 4.0, 1.2, 1.05, 0.1])
    assert repeat_trial(lambda: next(found)) == (1.0, True)
    assert next(found) == 0.1, "and no trial more than it takes"


def test_a_slow_trial_among_the_first_is_overruled() -> None:
    found = iter([90.0, 1.0, 1.0])
    assert repeat_trial(lambda: next(found)) == (1.0, True)


def test_a_rate_that_nothing_confirms_is_marked() -> None:
    found = (2.0**-index for index in range(1000))
    assert repeat_trial(lambda: next(found)) == (2.0 ** -(agreement._MOST - 1), False)


def test_trials_go_on_while_time_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(agreement.time, "perf_counter", lambda: float(next(clock)))
    found = chain([2.0] * 6, [1.0, 1.0], repeat(3.0))
    assert repeat_trial(lambda: next(found), seconds=7.5) == (1.0, True)


@pytest.mark.parametrize(("busy", "own", "share"), [(30.0, 10.0, 0.5), (10.0, 10.0, 0.0), (90.0, 10.0, 1.0)])
def test_the_share_of_others_is_what_is_busy_and_not_ours(
    busy: float, own: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([(100.0, 7.0, 50.0), (100.0 + busy, 7.0 + own, 60.0)])
    monkeypatch.setattr(agreement, "_processor_seconds", lambda: next(readings))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    with OthersShare() as others:
        pass
    assert others.share == share


def test_processor_seconds_grow() -> None:
    with OthersShare() as others:
        sum(range(10**6))
    assert others.share is not None
    assert 0 <= others.share <= 1
