"""Results for the pages of runs: a log that stays as it is, is read once."""

from dataclasses import replace

import pytest

from assay.config import Home
from assay.config.run import OwnRows
from assay.dashboard.runs.results import Results
from assay.launch.prepare import ReadyRun
from assay.records.status import Status
from assay.store.event_log import Log
from assay.store.result import begun_result
from assay.store.run_folder import RunFolder
from support.dashboards import client
from support.records import made, say, step


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the runs whose whole log was read, one for each reading."""
    found: list[str] = []
    read = RunFolder.log

    def counted(folder: RunFolder) -> Log:
        found.append(folder.id)
        return read(folder)

    monkeypatch.setattr(RunFolder, "log", counted)
    return found


def test_a_dead_run_is_composed_once_and_again_when_its_log_grows(
    home: Home, ready_run: ReadyRun, reads: list[str]
) -> None:
    folder = made(home, ready_run)
    say(folder, step(0))
    results = Results()
    assert [results.of(folder).steps for _ in range(3)] == [1, 1, 1]
    assert reads == [folder.id]
    say(folder, step(1))
    assert [results.of(folder).steps for _ in range(3)] == [2, 2, 2]
    assert reads == [folder.id] * 2
    assert not folder.result_file.exists()


def test_its_page_does_not_read_the_log_at_each_view(home: Home, ready_run: ReadyRun, reads: list[str]) -> None:
    folder, other = made(home, ready_run), made(home, ready_run)
    say(folder, step(0))
    browser = client(home)
    for _ in range(3):
        assert "killed" in browser.get(f"/runs/{folder.id}?against={other.id}").text
    assert sorted(reads) == sorted([folder.id, other.id])


def test_the_page_of_a_run_on_batches_of_its_own_has_their_words(home: Home, ready_run: ReadyRun) -> None:
    own = replace(ready_run, run=ready_run.run.model_copy(update={"own_rows": OwnRows(targets=1, validation=True)}))
    pages = [client(home).get(f"/runs/{made(home, one).id}").text for one in (ready_run, own)]
    assert ["tokens per second" in page for page in pages] == [True, False]
    assert ["targets per second" in page for page in pages] == [False, True]
    assert ["nats per token" in page for page in pages] == [True, False]


def test_a_run_that_goes_on_or_ends_is_read_anew(
    home: Home, ready_run: ReadyRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, results = made(home, ready_run), Results()
    assert results.of(folder).status is Status.KILLED
    with monkeypatch.context() as patch:
        patch.setattr("assay.dashboard.runs.results.is_running", lambda folder: True)
        assert results.of(folder).status is Status.RUNNING
    assert results.of(folder).status is Status.KILLED
    folder.write_result(begun_result(folder.spec()).model_copy(update={"status": Status.DONE}))
    assert results.of(folder).status is Status.DONE


def test_few_results_are_kept(
    home: Home, ready_run: ReadyRun, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.dashboard.runs.results._MOST_RESULTS", 2)
    first, second, third = (made(home, ready_run) for _ in range(3))
    results = Results()
    for folder in (first, second, third, second, third, first):
        results.of(folder)
    assert reads == [first.id, second.id, third.id, first.id]
