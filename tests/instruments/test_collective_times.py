"""Spans of collectives: what overlaps counts once; and the wait for the last rank, apart from the transfer."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from assay.instruments.collective_times import CollectiveCall, TimedCalls, calls, collective_times, travel, union_length


def test_overlapping_kernels_count_once() -> None:
    assert union_length([(0.0, 2.0), (1.0, 3.0), (1.5, 1.6), (5.0, 6.0)]) == pytest.approx(4.0)
    assert union_length([]) == 0.0


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: tuple(sorted(pair)))))
def test_it_is_the_length_of_the_union(spans: list[tuple[int, int]]) -> None:
    touched = {moment for start, end in spans for moment in range(start, end)}
    assert union_length([(float(start), float(end)) for start, end in spans]) == len(touched)


def test_on_one_device_nothing_is_under_way() -> None:
    found = travel(torch.device("cpu"), lambda: None)
    assert (found.under_way_seconds, found.share) == (0.0, 0.0)
    assert found.step_seconds > 0
    assert found.spans == ()


BOTH = CollectiveCall("all_reduce", "dp", (0, 1))


def timed(*calls_and_spans: tuple[CollectiveCall, float, float], host: str = "here") -> TimedCalls:
    return TimedCalls(host, tuple(call for call, _, _ in calls_and_spans), tuple(span for _, *span in calls_and_spans))  # type: ignore[misc]


def test_the_early_rank_waits_for_the_late_one() -> None:
    everyone = [timed((BOTH, 1.0, 5.0), (BOTH, 6.0, 7.0)), timed((BOTH, 4.0, 5.5), (BOTH, 6.0, 7.5))]
    (early,), (late,) = collective_times(everyone, 0), collective_times(everyone, 1)
    assert (early.collective, early.axis, early.count) == ("all_reduce", "dp", 2)
    assert (early.seconds, early.wait_seconds) == pytest.approx((5.0, 3.0))
    assert (late.seconds, late.wait_seconds) == pytest.approx((3.0, 0.0))


def test_a_wait_is_never_longer_than_the_call() -> None:
    # A send is done once its bytes are in a buffer, whenever they are asked for.
    everyone = [
        timed((CollectiveCall("send", "pp", (0, 1), peer=1), 1.0, 1.5)),
        timed((CollectiveCall("recv", "pp", (0, 1), peer=0), 3.0, 3.25)),
    ]
    (sent,), (received,) = collective_times(everyone, 0), collective_times(everyone, 1)
    assert (sent.seconds, sent.wait_seconds) == pytest.approx((0.5, 0.5))
    assert (received.collective, received.seconds, received.wait_seconds) == ("recv", 0.25, 0.0)


def test_a_send_is_over_when_it_is_received_whenever_its_caller_asks() -> None:
    everyone = [
        timed((CollectiveCall("send", "pp", (0, 1), peer=1), 1.0, 9.0)),
        timed((CollectiveCall("recv", "pp", (0, 1), peer=0), 3.0, 3.5)),
    ]
    (sent,), (received,) = collective_times(everyone, 0), collective_times(everyone, 1)
    assert (sent.seconds, sent.wait_seconds) == (2.5, 2.0)
    assert (received.seconds, received.wait_seconds) == (0.5, 0.0)


def test_groups_directions_and_axes_are_told_apart() -> None:
    others = CollectiveCall("all_reduce", "tp", (0, 2))
    down, up = CollectiveCall("send", "pp", (0, 1), peer=1), CollectiveCall("send", "pp", (0, 1), peer=0)
    everyone = [
        timed((down, 0.0, 1.0), (others, 2.0, 9.0), (CollectiveCall("recv", "pp", (0, 1), peer=1), 3.0, 8.0)),
        timed((up, 7.0, 8.0), (CollectiveCall("recv", "pp", (0, 1), peer=0), 7.5, 8.0)),
        timed((others, 6.0, 9.0)),
    ]
    found = {(one.collective, one.axis): one.wait_seconds for one in collective_times(everyone, 0)}
    assert found == pytest.approx({("send", "pp"): 1.0, ("all_reduce", "tp"): 4.0, ("recv", "pp"): 4.0})


def test_clocks_of_two_hosts_and_ranks_that_tell_nothing_leave_waits_unknown() -> None:
    here, there = timed((BOTH, 1.0, 5.0)), timed((BOTH, 4.0, 5.0))
    for other in (replace(there, host="there"), timed()):
        (one,) = collective_times([here, other], 0)
        assert (one.seconds, one.wait_seconds) == (4.0, None)


def test_calls_without_a_span_each_are_nameless() -> None:
    assert TimedCalls.of((BOTH, BOTH), ((0.0, 1.0),)).calls == ()
    whole = TimedCalls.of((BOTH,), ((0.0, 1.0),))
    assert whole.calls == (BOTH,)
    assert TimedCalls.from_json(whole.to_json()) == whole


def test_one_device_calls_nothing() -> None:
    assert calls(None, lambda: None) == ()
