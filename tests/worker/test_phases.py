"""The parts of the clock sum to the whole, to the nanosecond."""

import time

import pytest

from assay.worker.phases import PhaseClock


class FakeTime:
    """A clock that advances by what it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000
        monkeypatch.setattr(time, "perf_counter_ns", lambda: self.now)


def test_phases_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, clock = FakeTime(monkeypatch), PhaseClock()
    assert clock.seconds() == {}
    clock.enter("build")
    fake.now += 7
    clock.enter("steady")
    fake.now += 11
    with clock.during("evaluation"):
        assert clock.phase == "evaluation"
        fake.now += 13
    assert clock.phase == "steady"
    fake.now += 17
    assert clock.nanoseconds() == {"build": 7, "steady": 28, "evaluation": 13}
    clock.enter("build")
    fake.now += 19
    assert clock.nanoseconds() == {"build": 26, "steady": 28, "evaluation": 13}
    assert sum(clock.nanoseconds().values()) == fake.now - 1_000
    assert clock.seconds()["steady"] == 28e-9


def test_an_error_inside_a_phase_leaves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, clock = FakeTime(monkeypatch), PhaseClock()
    clock.enter("steady")
    with pytest.raises(ZeroDivisionError), clock.during("evaluation"):
        fake.now += 5 // (fake.now - fake.now)
    fake.now += 3
    assert clock.nanoseconds() == {"steady": 3, "evaluation": 0}


def test_the_real_clock_loses_nothing() -> None:
    clock = PhaseClock()
    begun = time.perf_counter_ns()
    clock.enter("a")
    for _ in range(1000):
        clock.enter("b")
        clock.enter("a")
    inside = sum(clock.nanoseconds().values())
    assert 0 < inside <= time.perf_counter_ns() - begun


def test_a_phase_inside_needs_one_around_it() -> None:
    with pytest.raises(RuntimeError, match="no phase was entered"), PhaseClock().during("evaluation"):
        pass
