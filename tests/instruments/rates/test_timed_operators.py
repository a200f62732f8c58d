"""Speeds of single operators: a slower one has a lower speed, and a trial counts once another agrees."""

import time
from itertools import chain, repeat

import psutil
import pytest
import torch

from assay.hardware.detect import CALLING, FLASH_DEPTHS, MOVING, flash_key, key_of
from assay.instruments.rates import timed_operators
from assay.instruments.rates.timed_operators import OthersShare, repeat_trial
from support.advice import RATES


def test_one_trial_is_not_enough_however_fast() -> None:
    found = iter([5.0, 1.0, 4.0, 1.2, 1.05, 0.1])
    assert repeat_trial(lambda: next(found)) == (1.0, True)
    assert next(found) == 0.1, "and no trial more than it takes"


def test_a_slow_trial_among_the_first_is_overruled() -> None:
    found = iter([90.0, 1.0, 1.0])
    assert repeat_trial(lambda: next(found)) == (1.0, True)


def test_a_rate_that_nothing_confirms_is_marked() -> None:
    found = (2.0**-index for index in range(1000))
    assert repeat_trial(lambda: next(found)) == (2.0 ** -(timed_operators._MOST - 1), False)


def test_trials_go_on_while_time_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(timed_operators.time, "perf_counter", lambda: float(next(clock)))
    found = chain([2.0] * 6, [1.0, 1.0], repeat(3.0))
    assert repeat_trial(lambda: next(found), seconds=7.5) == (1.0, True)


@pytest.mark.parametrize(("busy", "own", "share"), [(30.0, 10.0, 0.5), (10.0, 10.0, 0.0), (90.0, 10.0, 1.0)])
def test_the_share_of_others_is_what_is_busy_and_not_ours(
    busy: float, own: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([(100.0, 7.0, 50.0), (100.0 + busy, 7.0 + own, 60.0)])
    monkeypatch.setattr(timed_operators, "_processor_seconds", lambda: next(readings))
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    with OthersShare() as others:
        pass
    assert others.share == share


def test_processor_seconds_grow() -> None:
    with OthersShare() as others:
        sum(range(10**6))
    assert others.share is not None
    assert 0 <= others.share <= 1


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"_SIZES": (2**15, 2**16), "_FRESH": 2**17, "_CHAIN_BYTES": 2**17, "_ROWS": 32, "_LENGTH": 16}
    for name, value in (small | {"_LENGTHS": (8, 16)}).items():
        monkeypatch.setattr(timed_operators, name, value)


def test_every_operator_has_speeds_in_both_directions_at_ascending_sizes() -> None:
    found = timed_operators.measure_operators(RATES)
    names = ("mm", "bmm", "gelu", "_softmax", "clone", "_to_copy")
    assert {key_of(f"aten.{name}", dtype) for name in names for dtype in timed_operators.DTYPES} <= found.keys()
    assert {flash_key(depth, dtype) for depth in FLASH_DEPTHS for dtype in timed_operators.DTYPES} <= found.keys()
    assert found[MOVING] == found[key_of("aten.clone", "float32")]
    for speed in found.values():
        assert list(speed.at) == sorted(speed.at)
        assert len(speed.at) == len(speed.forward) == len(speed.backward)
        assert min(*speed.forward, *speed.backward) > 0
    assert 1e3 < found[CALLING].forward[0] < 1e7


def test_a_link_that_waits_is_found_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seconds are those of one link, forward and backward apart, without its launch."""

    class Slow(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            time.sleep(0.002)
            return x.clone()

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            time.sleep(0.006)
            return gradient

    rates = RATES.model_copy(update={"launch_seconds": 0.001, "backward_launch_seconds": 0.002})
    chain = timed_operators._chain(torch.ones(4, requires_grad=True), lambda x, place: Slow.apply(x), 3)
    forward, backward = timed_operators._seconds(chain, rates)
    assert forward >= 0.001
    assert backward >= 0.004


def test_a_time_that_is_all_launch_leaves_a_share() -> None:
    assert timed_operators._without(1e-6, 2e-6) == pytest.approx(0.2e-6)
