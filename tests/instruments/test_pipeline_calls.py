"""Idle shares of a line: those of the simulator when it is played back, and comparable only with a core for each."""

import time
from dataclasses import replace

import pytest
import torch
from torch.distributed.pipelining import PipelineStage

from assay.cost import pipeline_schedules
from assay.cost.pipeline_bubble import StageTime, play
from assay.instruments.pipeline_calls import Busy, busy, idle

LIGHT, HEAVY = StageTime(1.0, 1.0, 1.0), StageTime(3.0, 3.0, 3.0)


def played_back(*times: StageTime, processor_share: float = 1.0) -> list[Busy | None]:
    """What each rank of a line would have told of a simulated step."""
    played = play(pipeline_schedules.one_f_one_b(len(times), 4), times)
    begins = [begun[0] for begun in played.begin_seconds]
    return [
        Busy("here", 100 + begin, 100 + begin + span, spent, processor_share * spent)
        for begin, span, spent in zip(begins, played.span_seconds, played.busy_seconds, strict=True)
    ]


@pytest.mark.parametrize("times", [(LIGHT, LIGHT), (LIGHT, HEAVY), (HEAVY, LIGHT, LIGHT)])
def test_it_is_what_was_not_computed_of_the_line_s_span(times: tuple[StageTime, ...]) -> None:
    found = idle([played_back(*times)] * 3, range(len(times)))
    expected = play(pipeline_schedules.one_f_one_b(len(times), 4), times).idle_shares
    assert [found[rank].share for rank in range(len(times))] == pytest.approx(expected)
    assert all(one.comparable and one.processor_share == pytest.approx(1.0) for one in found.values())


def test_lines_are_told_apart_and_the_median_step_is_told() -> None:
    steps = [played_back(LIGHT, LIGHT), played_back(LIGHT, HEAVY), played_back(LIGHT, HEAVY)]
    crossed = [[step[0], None, step[1], None] for step in steps]
    found = idle(crossed, (0, 2))
    assert list(found) == [0, 2]
    assert found[0].share == found[0].shares[1] > found[0].shares[0]
    assert idle(crossed, (1, 3)) == {}


def test_one_rank_without_a_core_makes_none_comparable() -> None:
    first, second = played_back(LIGHT, LIGHT)
    assert first is not None
    assert first.processor_seconds is not None
    found = idle([[replace(first, processor_seconds=0.9 * first.processor_seconds), second]], (0, 1))
    assert [one.processor_share for one in found.values()] == pytest.approx([0.9, 1.0])
    assert not any(one.comparable for one in found.values())


def test_an_accelerator_is_a_rank_s_own() -> None:
    step = [replace(one, processor_seconds=None) for one in played_back(LIGHT, LIGHT) if one]
    assert all(one.comparable and one.processor_share is None for one in idle([step], (0, 1)).values())


def test_clocks_of_two_hosts_are_not_one() -> None:
    first, second = played_back(LIGHT, LIGHT)
    assert second is not None
    assert idle([[first, replace(second, host="there")]], (0, 1)) == {}


def test_a_call_that_waits_is_busy_without_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    def spin(*_: object) -> None:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass

    monkeypatch.setattr(PipelineStage, "forward_one_chunk", spin)
    monkeypatch.setattr(PipelineStage, "backward_one_chunk", lambda *_: time.sleep(0.2))
    # The engine's methods, without the engine.
    computed = busy(torch.device("cpu"), lambda: PipelineStage.forward_one_chunk(None, 0, ()))  # type: ignore[arg-type]
    waited = busy(torch.device("cpu"), lambda: PipelineStage.backward_one_chunk(None, 0))  # type: ignore[arg-type]
    assert computed is not None
    assert waited is not None
    assert computed.processor_seconds is not None
    assert computed.processor_seconds >= 0.02
    assert waited.busy_seconds >= 0.2
    assert waited.processor_seconds is not None
    assert waited.processor_seconds < 0.1
    assert PipelineStage.forward_one_chunk is spin, "the engine is as it was"


def test_without_a_pipeline_there_is_nothing() -> None:
    assert busy(torch.device("cpu"), lambda: None) is None
