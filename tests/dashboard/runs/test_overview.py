"""The first page: the last answer, what runs with its time left, what to ask next, and the name of the home."""

import os

from assay.config import Home
from assay.launch.prepare import ReadyRun
from assay.records.status import Status
from assay.store.processes import this_process
from assay.store.result import begun_result
from assay.studies.folder import StudyFolder
from support.comparisons import record
from support.dashboards import begin_study, client, end_cell
from support.records import made, say, step


def finished_study(home: Home) -> StudyFolder:
    found = record(seeds=3, name="ladder")
    folder = StudyFolder(home.reports / found.id)
    folder.path.mkdir()
    folder.write_record(found)
    return folder


def test_an_empty_home_says_what_to_run_first(home: Home) -> None:
    text = client(home).get("/").text
    assert "Nothing has run here yet" in text
    assert "assay compare demo --with sdpa_attention" in text
    assert str(home.root) in text


def test_the_last_study_has_its_sentence_and_what_follows(home: Home) -> None:
    folder = finished_study(home)
    text = client(home).get("/").text
    assert "<h1>ladder</h1>" in text
    assert "at the same loss." in text
    assert "assay train demo" in text
    assert "trains with this choice" in text
    assert f'href="/studies/{folder.id}"' in text
    assert "/what-if?preset=demo&amp;device=h100" in text


def test_a_later_run_is_the_last(home: Home, ready_run: ReadyRun) -> None:
    finished_study(home)
    folder = made(home, ready_run)
    say(folder, step(0))
    figures = {"status": Status.DONE, "steps": 1, "train_loss": 2.5}
    folder.write_result(begun_result(folder.spec()).model_copy(update=figures))
    text = client(home).get("/").text
    assert "the last run that ended" in text
    assert "It trained to a training loss of 2.5." in text
    failed = figures | {"status": Status.FAILED, "reason": "division by zero"}
    folder.write_result(begun_result(folder.spec()).model_copy(update=failed))
    assert "Division by zero." in client(home).get("/").text


def test_a_run_that_trains_has_its_time_left(home: Home, ready_run: ReadyRun) -> None:
    folder, here = made(home, ready_run), this_process(os.getpid())
    assert here is not None
    folder.write_process(here)
    say(folder, step(0), step(1))
    part = client(home).get("/?part=now").text
    assert "step 2 of 6, about 400 ms left" in part
    assert "<html" not in part
    assert "Something runs" in part


def test_a_study_that_runs_says_how_far_it_is(home: Home) -> None:
    found = record(seeds=2)
    folder = begin_study(home, found)
    end_cell(home, folder, found, 0)
    browser = client(home)
    with folder.locked():
        assert f"study · 1 of {len(found.cells)} runs" in browser.get("/").text
    stopped = browser.get("/").text
    assert f"1 of {len(found.cells)} runs have ended." in stopped
    assert f"assay study resume {folder.id}" in stopped


def test_a_damaged_study_is_a_sentence(home: Home) -> None:
    folder = StudyFolder(home.reports / "20261124-000000-00000")
    folder.path.mkdir()
    folder.record_file.write_text("{")
    answer = client(home).get("/")
    assert answer.status_code == 200
    assert "cannot be read" in answer.text
