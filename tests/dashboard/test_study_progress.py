"""Studies of a home: the state of each cell, the ending, cells that a stopped study left out, and a line for each."""

import shutil
from pathlib import Path

import pytest

from assay.config import Home
from assay.dashboard import stream
from assay.dashboard.server_state import ServerState
from assay.dashboard.study_progress import Course, merge_cells, planned_cells, progress_of
from assay.errors import UsageError
from assay.records.events import event_of
from assay.store.event_log import Event, read_since
from assay.studies.folder import StudyFolder
from support.comparisons import record
from support.dashboards import batches, begin_study, client, planned

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
RECORD = record(treatments=("sdpa_attention",))


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


@pytest.fixture
def studied(home: Home) -> StudyFolder:
    """A study that ran to its end, without its record."""
    folder = begin_study(home, RECORD)
    for number, one in enumerate(RECORD.cells):
        named = {"cell": one.cell.name, "run": f"run-{number}", "wave": one.wave}
        folder.append({"event": "cell_start", **named})
        folder.append({"event": "cell_end", **named, "status": "done"})
    folder.append({"event": "over", "ending": "complete"})
    return folder


def home_of(folder: StudyFolder) -> Home:
    return Home(folder.path.parents[1])


def test_a_study_is_listed_with_its_cells(studied: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    known = ServerState(home_of(studied)).studies
    (line,) = known.known()
    assert (line.id, line.title, line.kind, line.status) == (studied.id, "demo", "comparison", "complete")
    assert line.cells == line.ended == len(RECORD.cells)
    monkeypatch.setattr(StudyFolder, "plan", lambda self: pytest.fail("the plan was read again"))
    assert known.known() == [line]


def test_its_runs_are_those_of_its_log(studied: StudyFolder) -> None:
    home = home_of(studied)
    assert ServerState(home).studies.runs(studied.id) == {f"run-{number}" for number in range(len(RECORD.cells))}
    assert ServerState(home).studies.runs("../" + studied.id) == frozenset()


def test_the_page_and_the_stream_name_every_cell(studied: StudyFolder) -> None:
    browser = client(home_of(studied))
    text = browser.get(f"/studies/{studied.id}").text
    assert text.count('data-ended="yes"') == len(RECORD.cells)
    stream = batches(browser.get(f"/studies/{studied.id}/events").text)
    assert {one["state"] for one in stream[-1]["cells"]} == {"done"}
    assert stream[-1]["over"] == "complete"


def test_a_study_that_cannot_be_read_is_damaged(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").ready()
    folder = StudyFolder(home.reports / "20261124-000000-00000")
    folder.path.mkdir()
    folder.plan_file.write_text("{")
    (line,) = ServerState(home).studies.known()
    assert line.status == "damaged"
    assert "study.json cannot be read" in line.question
    assert client(home).get("/studies").status_code == 200
    assert client(home).get(f"/studies/{folder.id}").status_code == 404


def test_each_of_200_logs_is_read_once(studied: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = studied.plan()
    assert plan is not None
    others = [StudyFolder(studied.path.with_name(f"20261124-000000-{number:07x}")) for number in range(199)]
    for one in others:
        shutil.copytree(studied.path, one.path)
        one.write_plan(plan.model_copy(update={"id": one.id}))
    read: dict[Path, list[int]] = {}

    def counted(path: Path, offset: int, most: int) -> tuple[list[Event], int]:
        found, end = read_since(path, offset, most)
        read.setdefault(path, []).append(end - offset)
        return found, end

    monkeypatch.setattr(stream, "read_since", counted)
    known = ServerState(home_of(studied)).studies
    for _ in range(3):
        assert [line.status for line in known.known()] == ["complete"] * 200
    size = studied.events_file.stat().st_size
    assert len(read) == 200
    assert all(sum(counts) == size for counts in read.values())

    studied.append({"event": "plan"})
    grown = studied.events_file.stat().st_size
    others[0].path.rename(studied.path.parents[1] / "elsewhere")
    assert len(known.known()) == 199
    assert sum(read[studied.events_file]) == grown
    others[0].path.mkdir()
    shutil.copytree(others[1].path, others[0].path, dirs_exist_ok=True)
    others[0].write_plan(plan.model_copy(update={"id": others[0].id}))
    known.known()
    assert sum(read[others[0].events_file]) == 2 * size, "a tail of a study that was gone is forgotten"
