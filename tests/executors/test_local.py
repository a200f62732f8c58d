"""Waves on this machine: cells that take turns, and cells beside each other."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import numpy as np
import pytest

from assay.config import Home, load
from assay.errors import StorageError
from assay.executors import local
from assay.executors.base import (
    Conducted,
    Ended,
    Interrupting,
    News,
    Planned,
    RoundEnded,
    Started,
    Stepped,
    Turn,
    Work,
    Working,
)
from assay.executors.ended import curve_of
from assay.executors.local import Local, _Living
from assay.executors.news import from_events, to_event
from assay.launch.neighbours import Account, Accounts, Trees
from assay.records.events import LogEvent, StepEvent, event_of
from assay.records.run import RunResult
from assay.records.status import Status
from assay.records.study import Cell, StudyEnding
from assay.studies.plan import waves
from support.designs import conduct, design
from support.fake_child import NO_PROCESS, FakeFolder, Stage
from support.faults import until

CELLS = design(load("demo"), ["sdpa_attention", "bf16_mixed"], seeds=2)


class Untimed:
    """Children that are alive, and how many were at most."""

    def __init__(self) -> None:
        self.alive: set[str] = set()
        self.most = 0
        self.release = threading.Event()
        self.lock = threading.Lock()

    def start(self, cell: Cell) -> "Child":
        return Child(self, cell)


class Child(AbstractContextManager["Child"]):
    """A child without turns. It ends when another has begun, or when it is interrupted."""

    finished, upcoming, pid = False, None, NO_PROCESS
    folder = FakeFolder()

    def __init__(self, stage: Untimed, cell: Cell) -> None:
        self.stage, self.cell, self.status = stage, cell, Status.DONE
        with stage.lock:
            stage.alive.add(cell.name)
            stage.most = max(stage.most, len(stage.alive))

    def events(self) -> Iterator[LogEvent]:
        yield event_of({"event": "phase", "name": "steady"})
        yield event_of({"event": "step", "step": 0, "loss": 2.5, "seconds": 0.1, "tokens": 8})
        self.stage.release.wait(0.02)

    def turn(self, word: str = "") -> Iterator[LogEvent]:
        raise AssertionError("a cell that is not timed takes no turns")

    def interrupt(self) -> None:
        self.status = Status.INTERRUPTED

    def kill(self) -> None:
        self.status = Status.KILLED

    def result(self) -> RunResult:
        created = "2026-11-21T08:00:00+00:00"
        return RunResult(
            run=self.cell.name,
            status=self.status,
            reason=None,
            created=created,
            identity="0" * 12,
            config=self.cell.run,
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.stage.lock:
            self.stage.alive.discard(self.cell.name)


def work(stage: Untimed, slots: int, heard: list[News]) -> Work:
    waves = [(number, (cell,)) for number, cell in enumerate(CELLS)]
    return Work(waves, stage.start, 0, heard.append, Home("nowhere"), Path("nowhere"), slots)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_every_cell_runs_once_and_no_more_than_the_slots_at_a_time(slots: int) -> None:
    stage, heard = Untimed(), list[News]()
    done = Local().run(work(stage, slots, heard))
    assert sorted(one.cell.name for one in done.cells) == sorted(cell.name for cell in CELLS)
    assert stage.most == slots
    assert not stage.alive
    assert done.ending is StudyEnding.COMPLETE
    assert [len([one for one in heard if isinstance(one, kind)]) for kind in (Started, Stepped, Ended)] == [
        len(CELLS)
    ] * 3
    assert {one.cell.name: one.wave for one in done.cells} == {cell.name: at for at, cell in enumerate(CELLS)}


def test_the_cells_of_a_wave_follow_one_another_beside_other_waves() -> None:
    stage, heard = Untimed(), list[News]()
    asked = replace(work(stage, 3, heard), waves=[(0, CELLS[:4]), (1, CELLS[4:6])])
    done = Local().run(asked)
    assert stage.most == 2, "one of each wave"
    named = {cell.name: at for at, cell in enumerate(CELLS)}
    starts = [named[one.cell.name] for one in heard if isinstance(one, Started)]
    assert [one for one in starts if one < 4] == [0, 1, 2, 3]
    assert {one.cell.name: one.wave for one in done.cells} == {cell.name: named[cell.name] // 4 for cell in CELLS[:6]}


def test_an_interrupt_starts_no_further_cell_of_a_wave() -> None:
    stage = Untimed()

    def interrupting() -> Iterator[tuple[int, tuple[Cell, ...]]]:
        yield 0, CELLS[:4]
        until(lambda: bool(stage.alive), "it lives", 10.0)
        raise KeyboardInterrupt

    done = Local().run(replace(work(stage, 2, []), waves=interrupting()))
    assert done.ending is StudyEnding.INTERRUPTED
    assert len(done.cells) < 4


def test_an_error_of_one_cell_ends_all() -> None:
    stage = Untimed()

    def fail(cell: Cell) -> Child:
        if cell is CELLS[2]:
            raise RuntimeError("the disk is full")
        return Child(stage, cell)

    heard: list[News] = []
    asked = work(stage, 2, heard)
    with pytest.raises(RuntimeError, match="disk"):
        Local().run(Work(asked.waves, fail, 0, asked.tell, asked.home, asked.folder, 2))
    assert not stage.alive


@pytest.mark.parametrize("kind", [Started, Ended])
def test_a_log_that_cannot_be_written_ends_all(kind: type[News]) -> None:
    stage = Untimed()

    def full(news: News) -> None:
        if isinstance(news, kind):
            raise StorageError("the log could not be written")

    asked = work(stage, 2, [])
    with pytest.raises(StorageError, match="the log could not be written"):
        Local().run(replace(asked, tell=full))
    assert not stage.alive


def test_an_interrupt_lets_the_living_cells_end_and_starts_no_other() -> None:
    stage = Untimed()
    stage.release = threading.Event()
    waves = [(number, (cell,)) for number, cell in enumerate(CELLS)]

    def until_two_live() -> Iterator[tuple[int, tuple[Cell, ...]]]:
        for number, wave in waves:
            if number == 2:
                time.sleep(0.005)
                raise KeyboardInterrupt
            yield number, wave

    done = Local().run(Work(until_two_live(), stage.start, 0, lambda news: None, Home("n"), Path("n"), 3))
    assert done.ending is StudyEnding.INTERRUPTED
    assert {one.cell.name for one in done.cells} == {cell.name for cell in CELLS[:2]}
    assert not stage.alive


@pytest.mark.parametrize("kill", [False, True])
def test_a_stop_does_not_wait_for_a_cell_that_is_starting(kill: bool) -> None:
    """The first cell may wait for an import of torch; it is stopped once it is there, and no other one starts."""
    stage, heard = Untimed(), list[News]()
    begun, go_on = threading.Event(), threading.Event()

    def slow(cell: Cell) -> Child:
        begun.set()
        go_on.wait(10.0)
        return Child(stage, cell)

    living = _Living(replace(work(stage, 2, heard), start=slow))
    threads = [threading.Thread(target=living.run, args=(cell, 0)) for cell in CELLS[:2]]
    for one in threads:
        one.start()
    assert begun.wait(10.0)
    stopping = threading.Thread(target=living.kill if kill else living.interrupt)
    stopping.start()
    until(lambda: living._stopping and (kill or any(isinstance(one, Interrupting) for one in heard)), "it waits", 10.0)
    go_on.set()
    for one in (*threads, stopping):
        one.join(10.0)
        assert not one.is_alive()
    status = Status.KILLED if kill else Status.INTERRUPTED
    assert [one.result.status for one in living.done.cells] == [status]


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


@pytest.mark.parametrize(("cores", "ahead"), [(1, 1), (2, 2), (8, 3)])
def test_cells_of_a_wave_begin_at_once_one_on_each_core(
    monkeypatch: pytest.MonkeyPatch, cores: int, ahead: int
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    heard: list[News] = []
    stage = Stage()
    wave = CELLS[:3]
    Local().run(Work([(0, wave)], stage.start, stage.blocks, heard.append, Home("nowhere"), Path("nowhere")))
    begun = [
        one.cell.name if isinstance(one, Started) else "work" for one in heard if isinstance(one, Started | Working)
    ]
    assert begun[: ahead + 1] == [*(cell.name for cell in wave[:ahead]), "work"]
    assert [one for one in begun if one != "work"] == [cell.name for cell in wave]
    assert [(cell, piece) for cell, piece in stage.log if piece == "start"] == [(cell.name, "start") for cell in wave]


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
