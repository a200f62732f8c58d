"""The answer of a study: rows, sections and points are those of its record, and are made once."""

import json
import os

import pytest

from assay.analysis.choose.ranking import frontier
from assay.analysis.comparison import analyse
from assay.config import Home
from assay.dashboard.study_answer import Answers, points, record_so_far
from assay.records.study import BASELINE, ComparisonRecord
from assay.studies.folder import StudyFolder
from support.comparisons import LABELS, record
from support.dashboards import begin_study, client, end_cell


@pytest.fixture(scope="module")
def finished() -> ComparisonRecord:
    return record(seeds=3, name="ladder", question="Does it help?")


def stored(home: Home, record: ComparisonRecord) -> StudyFolder:
    folder = StudyFolder(home.reports / record.id)
    folder.path.mkdir()
    folder.write_record(record)
    return folder


def test_points_are_those_of_the_front(finished: ComparisonRecord) -> None:
    comparison = analyse(finished)
    found = points(comparison)
    assert found is not None
    rows = {one["row"]: one for one in found["points"]}
    assert rows.keys() == {BASELINE, *LABELS}
    for one in frontier(comparison).rows:
        point = rows[one.row.label]
        assert (point["seconds"], point["bytes"]) == (one.figures["time"], one.figures["memory"])
        assert point["on_front"] == one.on_front


def test_an_answer_is_made_once_for_each_record(
    home: Home, finished: ComparisonRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, answers = stored(home, finished), Answers(home)
    first = answers.of(folder)
    assert first is not None
    assert len(first.rows) == len(first.table.rows)
    assert first.parts[0].title == "The answer"
    assert answers.of(folder) is first
    os.utime(folder.record_file, ns=(1, 1))
    assert answers.of(folder) is not first


def test_a_study_without_a_record_has_none(home: Home) -> None:
    folder = StudyFolder(home.reports / "20261124-000000-00000")
    assert Answers(home).of(folder) is None


def test_the_page_has_answer_rows_and_cells(home: Home, finished: ComparisonRecord) -> None:
    folder = stored(home, finished)
    browser = client(home)
    text = browser.get(f"/studies/{folder.id}").text
    assert "<h2>The answer</h2>" in text
    assert text.count('class="mark"') == 2 + len(LABELS)
    assert text.count("data-cell=") == len(finished.cells)
    assert "<iframe" not in text
    assert browser.get(f"/studies/{folder.id}/page").status_code == 404
    listed = browser.get("/studies").text
    assert "ladder" in listed
    assert "Does it help?" in listed
    assert "complete" in listed


def test_runs_of_a_study_are_a_filter(home: Home, finished: ComparisonRecord) -> None:
    folder = stored(home, finished)
    text = client(home).get(f"/runs?study={folder.id}").text
    assert f'<option value="{folder.id}" selected>' in text
    assert "0 of 0 runs" in text  # their folders are elsewhere


def test_rows_fill_in_while_a_study_runs(home: Home, finished: ComparisonRecord) -> None:
    folder, browser = begin_study(home, finished), client(home)
    with folder.locked():
        before = browser.get(f"/studies/{folder.id}").text
        assert "fill in here as runs end" in before
        assert 'id="front"' not in before
        for number, one in enumerate(finished.cells):
            if one.cell.seed == 0:
                end_cell(home, folder, finished, number)
        part = browser.get(f"/studies/{folder.id}?part=answer").text
        assert "Memory and time of each row, so far" in part
        assert "<h2>The answer</h2>" not in part
        assert "<html" not in part
        shown = json.loads(part.split('id="points">')[1].split("</script>")[0])
        assert {one["row"] for one in shown["points"]} == {BASELINE, *LABELS}
        assert not any(one["on_front"] for one in shown["points"])
    assert not folder.record_file.exists()


def test_a_run_that_was_killed_is_not_recorded_for_the_figure(home: Home, finished: ComparisonRecord) -> None:
    folder = begin_study(home, finished)
    end_cell(home, folder, finished, 0)
    folder.append({"event": "cell_start", "cell": finished.cells[1].cell.name, "run": "20261101-gone", "wave": 0})
    found = record_so_far(folder, home)
    assert found is not None
    assert [one.cell.name for one in found.cells] == [finished.cells[0].cell.name]
