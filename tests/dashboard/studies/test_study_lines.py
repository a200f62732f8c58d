"""The list of studies: what their plans and logs say, read once."""

import shutil
from pathlib import Path

import pytest

from assay.config import Home
from assay.dashboard import tail
from assay.dashboard.server_state import ServerState
from assay.store.event_log import Event, read_since
from assay.studies.folder import StudyFolder
from support.comparisons import record
from support.dashboards import batches, begin_study, client

RECORD = record(treatments=("sdpa_attention",))


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

    monkeypatch.setattr(tail, "read_since", counted)
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
