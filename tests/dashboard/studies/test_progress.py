"""The course of a study: the state of each cell, its ending, and cells that a stopped study left out."""

import pytest

from assay.dashboard.studies.progress import Course, merge_cells, planned_cells, progress_of
from assay.errors import UsageError
from assay.records.events import event_of
from support.comparisons import record
from support.dashboards import planned

LOG = [
    event_of(line)
    for line in (
        {"event": "plan"},
        {"event": "cell_start", "cell": "a, seed 0", "run": "r1", "wave": 0},
        {"event": "turn", "cell": "a, seed 0", "piece": "start", "number": 0},
        {"event": "cell_phase", "cell": "a, seed 0", "phase": "first_step"},
        {"event": "turn", "cell": "a, seed 0", "piece": "block", "number": 2},
        {"event": "cell_phase", "cell": "a, seed 0", "phase": "steady"},
        {"event": "turn", "cell": "a, seed 0", "piece": "finish", "number": 0},
        {"event": "cell_end", "cell": "a, seed 0", "run": "r1", "wave": 0, "status": "out_of_memory"},
        {"event": "over", "ending": "complete"},
    )
]
STATES = ["starting", "starting", "first step", "timing 2", "timing 2", "finishing", "out of memory"]


def test_a_cell_passes_through_its_states() -> None:
    course = Course()
    course(LOG[:1])
    for event, state in zip(LOG[1:8], STATES, strict=True):
        (batch,) = course([event])
        assert [(one["state"], one["run"]) for one in batch["cells"]] == [(state, "r1")]
    assert course(LOG[8:])[0]["over"] == "complete"


def test_pieces_of_a_log_say_what_the_whole_says() -> None:
    whole = merge_cells(Course()(LOG))
    for cut in range(len(LOG)):
        course = Course()
        assert merge_cells([*course(LOG[:cut]), *course(LOG[cut:])]) == whole
    cells, over = whole
    assert over == "complete"
    assert cells["a, seed 0"]["ended"]


def test_a_resumed_study_is_not_over() -> None:
    course = Course()
    course(LOG)
    assert course([event_of({"event": "plan"})])[0]["over"] is None


def test_a_cell_without_an_end_is_missing_once_nothing_runs() -> None:
    cells = merge_cells(Course()(LOG[:4]))[0]
    names = {"a, seed 0": "rate 1e-3, seed 0", "b, seed 0": "rate 2e-3, seed 0"}
    assert [one["name"] for one in planned_cells(names, cells, running=True)] == list(names.values())
    assert [one["state"] for one in planned_cells(names, cells, running=True)] == ["first step", "waiting"]
    assert [one["state"] for one in planned_cells(names, cells, running=False)] == ["missing", "missing"]


PLAN = planned(record(seeds=2, treatments=("sdpa_attention",)))
CELLS = [cell.name for cell in PLAN.cells]


def wave_log(cells: list[str], since: float, seconds: float = 2.0) -> list[dict[str, object]]:
    """The log of a wave, each piece of whose work takes so many seconds."""
    pieces = [("start", 0), *(("block", 1 + number) for number in range(PLAN.protocol.blocks)), ("finish", 0)]
    turns = [(cell, piece) for piece in pieces for cell in cells]
    log: list[dict[str, object]] = [
        {"event": "turn", "cell": cell, "piece": piece, "number": number, "time": since + seconds * place}
        for place, (cell, (piece, number)) in enumerate(turns)
    ]
    end = {"event": "cell_end", "run": "r", "wave": 0, "status": "done", "time": since + seconds * len(turns)}
    return [*log, *({**end, "cell": cell} for cell in cells)]


def test_the_time_left_follows_from_the_times_of_the_log() -> None:
    half = len(CELLS) // 2
    log = [event_of(one) for one in ({"event": "plan"}, *wave_log(CELLS[:half], since=1000.0))]
    whole = progress_of(Course(lambda: PLAN)(log))
    left = 2.0 * half * (PLAN.protocol.blocks + 2)
    assert whole == f"{half} of {len(CELLS)} runs, about {left:.0f} s left"
    course = Course(lambda: PLAN)
    assert progress_of([*course(log[:7]), *course(log[7:])]) == whole


def test_a_study_that_was_stopped_goes_on_with_the_cells_that_ended() -> None:
    half = len(CELLS) // 2
    over = {"event": "over", "ending": "interrupted"}
    course = Course(lambda: PLAN)
    assert progress_of(course([event_of(one) for one in (*wave_log(CELLS[:half], since=0.0), over)])) == ""
    (batch,) = course([event_of(one) for one in wave_log(CELLS[half:], since=9000.0)[: 2 * half]])
    assert batch["over"] is None
    assert batch["progress"].startswith(f"{half} of {len(CELLS)} runs, about ")


def test_a_plan_that_cannot_be_read_gives_no_time() -> None:
    def damaged() -> None:
        raise UsageError("the plan is damaged")

    assert progress_of(Course(damaged)(LOG[:4])) == ""
    assert Course(lambda: pytest.fail("the plan of a study that is over was read"))(LOG)[0]["progress"] is None
