"""The course of a study: the state of each cell, its ending, and cells that a stopped study left out."""

from assay.dashboard.studies.progress import Course, merge_cells, planned_cells
from assay.records.events import event_of

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
STATES = ["starting", "starting", "first step", "block 2", "block 2", "finishing", "out of memory"]


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
    names = ["a, seed 0", "b, seed 0"]
    assert [one["state"] for one in planned_cells(names, cells, running=True)] == ["first step", "waiting"]
    assert [one["state"] for one in planned_cells(names, cells, running=False)] == ["missing", "missing"]
