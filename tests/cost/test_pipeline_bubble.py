"""Pipelines: the simulator equals the published bubbles on equal stages, and answers to unequal ones."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.cost import pipeline_schedules
from assay.cost.pipeline_bubble import StageTime, bubble_fraction, play, zero_bubble_seconds
from assay.cost.pipeline_schedules import Action, Schedule

STAGES, MICRO_BATCHES = st.integers(1, 8), st.integers(1, 20)
SECONDS = st.integers(1, 8).map(float)
TIMES = st.builds(StageTime, SECONDS, SECONDS, SECONDS)
EQUAL = StageTime(1.0, 1.0, 1.0)
UNEQUAL = StageTime(2.0, 3.0, 1.0)


@given(STAGES, MICRO_BATCHES, TIMES)
def test_gpipe_and_1f1b_have_the_published_bubble(stages: int, micro_batches: int, time: StageTime) -> None:
    for schedule in (
        pipeline_schedules.gpipe(stages, micro_batches),
        pipeline_schedules.one_f_one_b(stages, micro_batches),
    ):
        played = play(schedule, [time] * stages)
        assert played.idle_share == pytest.approx(bubble_fraction(stages, micro_batches), abs=1e-12)


@given(STAGES, MICRO_BATCHES)
def test_1f1b_holds_what_lies_behind_and_gpipe_all(stages: int, micro_batches: int) -> None:
    gpipe = play(pipeline_schedules.gpipe(stages, micro_batches), [EQUAL] * stages)
    assert gpipe.held == (micro_batches,) * stages
    played = play(pipeline_schedules.one_f_one_b(stages, micro_batches), [EQUAL] * stages)
    assert played.held == tuple(min(micro_batches, stages - stage) for stage in range(stages))


@given(STAGES, st.integers(1, 4), st.integers(1, 4), TIMES)
def test_interleaving_divides_the_bubble(stages: int, rounds: int, chunks: int, time: StageTime) -> None:
    micro_batches = rounds * stages
    played = play(pipeline_schedules.interleaved_1f1b(stages, micro_batches, chunks), [time] * stages)
    assert played.idle_share == pytest.approx(bubble_fraction(stages, micro_batches, chunks), abs=1e-12)
    if rounds > 1:
        # arXiv:2205.05198, section 4.2.3: the first stage holds L (1 + (p−1)/(pm)) layers' activations.
        assert played.held[0] == stages * (1 + Fraction(stages - 1, stages * chunks))


def test_a_round_that_is_not_full_cannot_interleave() -> None:
    with pytest.raises(ValueError, match="a multiple of 4 micro-batches, not 6"):
        pipeline_schedules.interleaved_1f1b(4, 6, 2)


@given(STAGES, st.integers(0, 12), TIMES)
def test_zb_h1_has_the_published_bubble_at_the_memory_of_1f1b(stages: int, more: int, time: StageTime) -> None:
    """arXiv:2401.10241, table 2; the simulator finds more where t_W is longer than t_F or t_I."""
    forward, backward, weight = time.forward_seconds, time.input_seconds, time.weight_seconds
    time = StageTime(forward, backward, min(forward, backward, weight))
    micro_batches = stages + more
    played = play(pipeline_schedules.zero_bubble_h1(stages, micro_batches), [time] * stages)
    useful = micro_batches * (time.of("F") + time.of("B"))
    assert max(played.span_seconds) - useful == pytest.approx(zero_bubble_seconds(stages, time))
    assert played.held == (stages,) * stages


@given(st.integers(1, 6), st.integers(0, 8))
def test_equal_parts_leave_a_third_and_nothing(stages: int, more: int) -> None:
    """At t_F = t_I = t_W the paper's bubble over the useful time is (p−1)/(3m) for ZB-H1 and 0 for ZB-H2."""
    micro_batches = 2 * stages - 1 + more
    first = play(pipeline_schedules.zero_bubble_h1(stages, micro_batches), [EQUAL] * stages)
    assert first.makespan_seconds / (3 * micro_batches) - 1 == pytest.approx((stages - 1) / (3 * micro_batches))
    second = play(pipeline_schedules.zero_bubble_h2(stages, micro_batches), [EQUAL] * stages)
    assert second.span_seconds == (3 * micro_batches,) * stages
    assert second.held == (2 * stages - 1,) * stages
    assert zero_bubble_seconds(stages, EQUAL, put_off=2) == 0


@given(st.integers(1, 6), st.integers(0, 8))
def test_a_vee_ends_as_early_as_one_can_at_the_memory_of_1f1b(stages: int, more: int) -> None:
    micro_batches = 2 * stages + more
    played = play(pipeline_schedules.zero_bubble_v(stages, micro_batches), [EQUAL] * stages)
    # The last stage of the first leg cannot begin before its first input has come down the others' half stages.
    earliest = 3 * micro_batches + (stages - 1) / 2
    assert earliest <= played.makespan_seconds <= earliest + 1
    assert max(played.held) <= stages


@given(STAGES, MICRO_BATCHES)
def test_every_schedule_does_everything_once(stages: int, micro_batches: int) -> None:
    for make in (
        pipeline_schedules.gpipe,
        pipeline_schedules.one_f_one_b,
        pipeline_schedules.zero_bubble_h1,
        pipeline_schedules.zero_bubble_h2,
    ):
        played = play(make(stages, micro_batches), [EQUAL] * stages)
        assert played.busy_seconds == (3 * micro_batches,) * stages
    vee = play(pipeline_schedules.zero_bubble_v(stages, micro_batches), [EQUAL] * stages)
    assert vee.busy_seconds == pytest.approx((3 * micro_batches,) * stages)


@given(st.integers(2, 6), st.integers(2, 20), st.data())
def test_an_unequal_stage_idles_the_others(stages: int, micro_batches: int, data: st.DataObject) -> None:
    slow = data.draw(st.integers(0, stages - 1))
    times = [StageTime(5.0, 5.0, 5.0) if stage == slow else EQUAL for stage in range(stages)]
    for make in (pipeline_schedules.gpipe, pipeline_schedules.one_f_one_b):
        played = play(make(stages, micro_batches), times)
        assert played.idle_share > bubble_fraction(stages, micro_batches)
        assert min(played.idle_shares) == played.idle_shares[slow]


def test_sends_delay_and_keep_nobody_busy() -> None:
    schedule = pipeline_schedules.gpipe(3, 4)
    free, paid = (play(schedule, [EQUAL] * 3, send_seconds=seconds) for seconds in (0.0, 0.5))
    # Two sends on the way down and two on the way back; those between are hidden.
    assert paid.makespan_seconds == free.makespan_seconds + 4 * 0.5
    assert paid.busy_seconds == free.busy_seconds
    alone = pipeline_schedules.interleaved_1f1b(1, 4, 3)
    assert play(alone, [EQUAL], send_seconds=9.0).idle_share == pytest.approx(0)


def test_stages_that_wait_for_each_other_are_named() -> None:
    forward, backward = Action("F", 0), Action("B", 0)
    with pytest.raises(ValueError, match=r"stage 0 waits forever before Action\(kind='B'"):
        play(Schedule(((backward, forward), (forward, backward))), [EQUAL] * 2)


def test_published_numbers() -> None:
    # arXiv:2104.04473, section 2.2: with m = 4p the bubble is small; GPT-3's 1 trillion model has p = 64, m = 512.
    assert bubble_fraction(64, 512) == pytest.approx(63 / 575)
    assert bubble_fraction(4, 8) == pytest.approx(0.2727, abs=1e-4)
    assert bubble_fraction(4, 8, chunks=2) == pytest.approx(3 / 19)
    assert bubble_fraction(1, 1) == 0


@pytest.mark.parametrize(
    "make", [pipeline_schedules.gpipe, pipeline_schedules.one_f_one_b, pipeline_schedules.zero_bubble_v]
)
def test_a_stage_does_one_thing_at_a_time_and_nothing_before_what_it_needs(make: Any) -> None:
    schedule = make(4, 6)
    played = play(schedule, [UNEQUAL] * 4)
    begins = {}
    for stage, (order, begun) in enumerate(zip(schedule.orders, played.begin_seconds, strict=True)):
        ends = [begin + UNEQUAL.of(action.kind) / schedule.chunks for action, begin in zip(order, begun, strict=True)]
        assert all(end <= begin + 1e-12 for end, begin in zip(ends, begun[1:], strict=False))
        assert max(ends) <= played.makespan_seconds + 1e-12
        for action, begin in zip(order, begun, strict=True):
            begins[action.kind, action.micro_batch, schedule.position(stage, action.chunk)] = begin
    for (kind, index, place), begin in begins.items():
        if kind == "F" and place:
            assert begins["F", index, place - 1] < begin
