import json
import time
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from assay.config import Home, load
from assay.executors import local
from assay.executors.base import Conducted, Ended, News, Planned, RoundEnded, Stepped, Turn, Working
from assay.executors.ended import curve_of
from assay.executors.news import from_events, to_event
from assay.launch.neighbours import Account, Accounts, Trees
from assay.records.events import StepEvent, event_of
from assay.records.status import Status
from assay.records.study import StudyEnding
from assay.studies.plan import waves
from support.designs import conduct, design
from support.fake_child import Stage

CELLS = design(load("demo"), ["sdpa_attention", "bf16_mixed"], seeds=2)
NAMES = [cell.name for cell in CELLS]
FIRST = NAMES[:4]


def run(stage: Stage, resident: int = 9, heard: list[News] | None = None) -> Conducted:
    return conduct(waves(CELLS, resident), stage.start, stage.blocks, [].append if heard is None else heard.append)


def test_every_round_has_each_living_cell_once() -> None:
    stage = Stage()
    done = run(stage)
    assert len(done.rounds) == 10
    for one in done.rounds:
        assert sorted(one.order) == sorted(name for name in NAMES if f"seed {one.seed}" in name)
    for number in range(1, 6):
        worked = [name for name, piece in stage.log if piece == f"block {number}"]
        assert Counter(worked) == Counter(NAMES)


def test_cells_start_then_take_turns_then_finish() -> None:
    stage = Stage()
    run(stage)
    pieces = [piece for name, piece in stage.log if name in FIRST]
    kinds = [piece.partition(" ")[0] for piece in pieces]
    assert kinds == ["start"] * 4 + ["block"] * 20 + ["finish"] * 4
    assert pieces[4:24] == [f"block {number}" for number in range(1, 6) for _ in FIRST]


def test_the_order_changes_between_rounds_and_repeats_between_comparisons() -> None:
    orders = [one.order for one in run(Stage()).rounds]
    assert len(set(orders[:5])) > 1
    assert orders == [one.order for one in run(Stage()).rounds]


def test_the_cells_of_one_seed_only_are_alive_together() -> None:
    stage = Stage()
    run(stage)
    assert stage.most_alive == 4
    assert stage.alive == set()


def test_smaller_waves_keep_fewer_alive() -> None:
    stage = Stage()
    done = run(stage, resident=3)
    assert stage.most_alive == 3
    assert {one.wave for one in done.cells} == {0, 1, 2, 3}
    assert len(done.cells) == 10


@pytest.mark.parametrize("status", [Status.KILLED, Status.OUT_OF_MEMORY, Status.NO_EFFECT, Status.DIVERGED])
@pytest.mark.parametrize("piece", ["start", "block 2", "finish"])
def test_a_death_is_recorded_and_the_others_go_on(status: Status, piece: str) -> None:
    stage = Stage()
    victim = FIRST[2]
    stage.deaths[victim] = (piece, status)
    done = run(stage)
    endings = {one.cell.name: one.result.status for one in done.cells}
    assert endings == {name: status if name == victim else Status.DONE for name in NAMES}
    blocks = {"start": 0, "block 2": 2, "finish": 5}[piece]
    assert sum(victim in one.order for one in done.rounds) == blocks
    assert done.ending is StudyEnding.COMPLETE


def test_a_wave_whose_cells_all_die_does_not_stop_the_next() -> None:
    stage = Stage()
    stage.deaths = dict.fromkeys(FIRST, ("start", Status.OUT_OF_MEMORY))
    done = run(stage)
    assert [one.result.status for one in done.cells] == [Status.OUT_OF_MEMORY] * 4 + [Status.DONE] * 4


def test_the_loss_of_a_cell_is_kept() -> None:
    curve = run(Stage()).cells[0].curve
    assert curve.train_loss == (3.0, 2.0, 1.0)
    assert curve.evaluations == ((3, 1.5),)


@pytest.mark.parametrize(
    ("loss", "kept"), [(6.955020427703857, 6.9550204), (0.1, 0.1), (1e300, 1e300), (None, None), (0.0, 0.0)]
)
def test_a_loss_keeps_the_digits_of_a_float32(loss: float | None, kept: float | None) -> None:
    found = curve_of([StepEvent(event="step", step=0, loss=loss, seconds=0.1, tokens=8)]).train_loss[0]
    assert found == kept
    assert loss is None or abs(loss) > 1e38 or np.float32(found) == np.float32(loss)


def test_a_curve_ends_before_a_step_whose_event_is_missing() -> None:
    steps = [StepEvent(event="step", step=n, loss=3.0 - n, seconds=0.1, tokens=8) for n in (0, 1, 3)]
    assert curve_of(steps).train_loss == (3.0, 2.0)


def test_a_curve_has_the_seconds_of_each_step_and_names_the_unsteady_ones() -> None:
    phases = ("first_step", "settling", "steady", None)
    steps = [
        StepEvent(event="step", step=n, loss=1.0, seconds=0.12345678, tokens=8, phase=phase)
        for n, phase in enumerate(phases)
    ]
    curve = curve_of(steps)
    assert curve.step_seconds == (0.123457,) * 4
    assert curve.unsteady == (0, 1, 3)


def test_an_interrupt_ends_every_living_cell_in_an_orderly_way() -> None:
    stage = Stage()
    stage.interrupts_at = (FIRST[1], "block 3")
    done = run(stage)
    assert done.ending is StudyEnding.INTERRUPTED
    assert {one.cell.name: one.result.status for one in done.cells} == dict.fromkeys(FIRST, Status.INTERRUPTED)
    assert [name for name, piece in stage.log if piece == "interrupted"] == FIRST
    assert stage.alive == set()


def test_an_error_leaves_no_child_alive() -> None:
    stage = Stage()

    def fail(news: News) -> None:
        if isinstance(news, Turn) and news.piece == "block":
            raise RuntimeError("the listener broke")

    with pytest.raises(RuntimeError, match="listener"):
        conduct(waves(CELLS, 9), stage.start, stage.blocks, fail)
    assert stage.alive == set()


def test_a_disturbed_round_is_repeated_by_every_cell_after_it_finished() -> None:
    stage = Stage()
    stage.disturbed = {
        (FIRST[1], "block 2"),
        (FIRST[3], "block 2"),
        (FIRST[0], "block 5"),
        (FIRST[2], "repeated block 1"),
    }
    done = run(stage)
    rounds = [one for one in done.rounds if one.seed == 0]
    assert [one.number for one in rounds] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {one.number: set(one.disturbed) for one in rounds if one.disturbed} == {
        2: {FIRST[1], FIRST[3]},
        5: {FIRST[0]},
        6: {FIRST[2]},
    }
    assert all(sorted(one.order) == sorted(FIRST) for one in rounds)
    pieces = [piece for name, piece in stage.log if name == FIRST[0]]
    assert pieces[-4:] == ["finish", "repeated block 1", "repeated block 2", "repeated block 3"]
    assert len([one for one in done.rounds if one.seed == 1]) == 5
    assert {one.result.status for one in done.cells} == {Status.DONE}


def test_there_are_at_most_as_many_repeated_rounds_as_planned_ones() -> None:
    stage = Stage(blocks=2)
    stage.disturbed = {(name, f"{kind}block {n}") for name in NAMES for kind in ("", "repeated ") for n in range(1, 9)}
    done = run(stage)
    assert [one.number for one in done.rounds] == [1, 2, 3, 4] * 2
    assert {one.result.status for one in done.cells} == {Status.DONE}


def test_a_death_in_a_repeated_round_ends_that_cell_alone() -> None:
    stage = Stage()
    stage.disturbed = {(FIRST[0], "block 1")}
    stage.deaths[FIRST[1]] = ("repeated block 1", Status.KILLED)
    done = run(stage)
    endings = {one.cell.name: one.result.status for one in done.cells}
    assert endings == {name: Status.KILLED if name == FIRST[1] else Status.DONE for name in NAMES}


def test_news_tell_what_runs_and_what_is_left() -> None:
    heard: list[News] = []
    run(Stage(), heard=heard)
    assert isinstance(heard[0], Planned)
    assert [cell.name for wave in heard[0].waves for cell in wave] == NAMES
    turns = Counter((one.cell.name, one.piece) for one in heard if isinstance(one, Turn))
    assert all(
        turns[name, piece] == count for name in NAMES for piece, count in (("start", 1), ("block", 5), ("finish", 1))
    )
    assert sum(isinstance(one, Ended) for one in heard) == len(NAMES)
    assert any(isinstance(one, Working) for one in heard)
    steps = Counter((one.cell.name, one.steps, one.loss) for one in heard if isinstance(one, Stepped))
    assert steps == {(name, 4, 2.5): 5 for name in NAMES}, "a loss that is not finite is no news"


class Spinning(Trees):
    """Trees in which one cell uses half a processor second between any two readings, while it waits."""

    def read(self, leaders: Mapping[str, int]) -> Mapping[str, Accounts]:
        self.readings = getattr(self, "readings", 0) + 1
        used = {name: 0.5 * self.readings if name == FIRST[1] else 3.0 for name in leaders}
        return {name: {(1, 0.0): Account(own, 0.0)} for name, own in used.items()}


def test_processor_time_of_waiting_cells_is_read_at_the_edges_of_each_timed_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local, "Trees", Spinning)
    rounds = [one for one in run(Stage()).rounds if one.seed == 0]
    assert len(rounds) == 10, "all were disturbed, so all were repeated"
    for one in rounds:
        assert one.turn_seconds.keys() == set(FIRST)
        assert one.outside_seconds == pytest.approx({name: 1.5 if name == FIRST[1] else 0.0 for name in FIRST})
        assert set(one.disturbed) == set(FIRST) - {FIRST[1]}


def test_cells_that_wait_disturb_nothing() -> None:
    for one in run(Stage()).rounds:
        assert set(one.outside_seconds.values()) == {0.0}
        assert one.disturbed == ()


def test_the_log_of_a_study_keeps_it() -> None:
    (first, *_) = run(Stage()).rounds
    event = to_event(RoundEnded(first))
    assert event is not None
    (again,) = from_events([event_of(json.loads(json.dumps(event)))], waves(CELLS, 9), 5, Home("nowhere"))
    assert again == RoundEnded(first)


def test_the_log_of_a_study_tells_when_a_turn_begins_and_a_cell_ends() -> None:
    heard: list[News] = []
    before = time.time()
    run(Stage(), heard=heard)
    told = [event for news in heard if (event := to_event(news)) is not None]
    timed = [event_of(event) for event in told if event["event"] in ("turn", "cell_end")]
    assert len(timed) > 2
    assert all(before - 0.01 <= one.line()["time"] <= time.time() + 0.01 for one in timed)
