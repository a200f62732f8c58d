"""What stands after a resume, on hand-made events and against a straightforward replay."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assay.records.events import LogEvent, StepEvent, event_of
from assay.records.evidence import ValueProof
from assay.store import history


def start(at: int = 0, **facts: Any) -> LogEvent:
    return event_of({"event": "start", "resumed_at": at, **facts})


def step(index: int, process: int = 0, tokens: int = 8) -> LogEvent:
    return event_of({"event": "step", "step": index, "loss": 1.0, "seconds": 0.1, "tokens": tokens, "process": process})


def process_of(one: StepEvent) -> int:
    return (one.model_extra or {})["process"]


def test_steps_beyond_the_checkpoint_are_taken_back() -> None:
    events = [start(), *(step(index) for index in range(5)), start(3), step(3, 1)]
    assert [(one.step, process_of(one)) for one in history.steps(events)] == [(0, 0), (1, 0), (2, 0), (3, 1)]


def test_an_evaluation_at_the_checkpoint_stands() -> None:
    figures = {"loss": 1.0, "perplexity": 2.7, "bits_per_byte": 1.4}
    seen = [event_of({"event": "evaluation", "step": done, **figures}) for done in (2, 4)]
    assert [one.step for one in history.evaluations([start(), *seen, start(2)])] == [2]
    assert [one.step for one in history.evaluations([start(), *seen, start(4)])] == [2, 4]


def test_only_the_last_process_has_blocks() -> None:
    rest = {"steps": 3, "median_step_seconds": 0.5, "tokens": 24, "process_peak_bytes": None}
    blocks = [event_of({"event": "block", "seconds": seconds, **rest}) for seconds in (1.0, 2.0)]
    assert [one.seconds for one in history.blocks([start(), blocks[0], start(), blocks[1], step(0)])] == [2.0]
    assert history.blocks([]) == []


def test_times_are_of_the_last_mesh_only() -> None:
    one, two = {"mesh": "one device"}, {"mesh": "dp=2"}
    events = [start(**one), step(0), start(1, **two), step(1), start(2, **two), step(2)]
    assert [seen.step for seen in history.steps(history.of_last_mesh(events))] == [1, 2]
    again = [*events, start(3, **one), step(3)]
    assert [seen.step for seen in history.steps(history.of_last_mesh(again))] == [3]
    assert history.of_last_mesh([*again, start(4, **two)])[:-1] == []


@given(st.lists(st.tuples(st.integers(1, 8), st.floats(0, 1)), max_size=6))
def test_the_present_history_is_that_of_an_uninterrupted_reader(processes: list[tuple[int, float]]) -> None:
    """Each process resumes somewhere in what stands and does some steps; the steps are 0, 1, 2, … without a hole."""
    events: list[LogEvent] = []
    standing: list[int] = []
    for number, (count, where) in enumerate(processes):
        at = int(where * len(standing))
        events += [start(at), *(step(at + done, number) for done in range(count))]
        standing = standing[:at] + [number] * count
    found = history.steps(events)
    assert [one.step for one in found] == list(range(len(standing)))
    assert [process_of(one) for one in found] == standing


def test_a_value_check_is_read_back_and_a_damaged_one_is_none() -> None:
    proof = ValueProof(verdict=False, failures=("the loss in step 0 is off",), steps=3)
    written = event_of(json.loads(json.dumps({"event": "values", "proof": proof.model_dump(mode="json")})))
    assert history.values([start(), written]) == proof
    assert history.values([start(), event_of({"event": "values", "proof": {"steps": "many"}})]) is None
    assert history.values([start()]) is None


def test_the_tokens_of_a_step_are_a_mean_of_steady_ones() -> None:
    events = [step(index, tokens=tokens) for index, tokens in enumerate((8, 3, 4))]
    assert history.step_tokens(history.steps(events)) == 5
    assert history.step_tokens([]) is None


def test_steps_of_a_process_that_showed_nothing_are_unproven_once_another_goes_on_from_them() -> None:
    right = event_of({"event": "values", "proof": ValueProof(verdict=True, steps=3).model_dump(mode="json")})
    broken = event_of({"event": "values", "proof": ValueProof(broken="its process ended").model_dump(mode="json")})
    wrong = event_of(
        {"event": "values", "proof": ValueProof(failures=("a loss is off",), steps=3).model_dump(mode="json")}
    )
    assert history.unproven_steps([start()]) == 0
    assert history.unproven_steps([start(), right, start(7)]) == 0
    assert history.unproven_steps([start(), right, broken, start(7)]) == 7
    assert history.unproven_steps([start(), start(7)]) == 7, "nothing was said"
    assert history.unproven_steps([start(), right, start(7), wrong, start(9), right]) == 2
    assert history.unproven_steps([start(), broken, start(7), right, start(9)]) == 7
    assert history.unproven_steps([start(), broken, start(0)]) == 0, "all of its steps are trained again"
