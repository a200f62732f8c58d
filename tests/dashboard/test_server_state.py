"""Memory of the server: a log that stays as it is, is read once, and one reader serves all streams of a run."""

import os
from dataclasses import replace
from threading import Timer

import pytest

from assay.config import Home
from assay.config.run import OwnRows
from assay.dashboard.server_state import Present, Results, why_not
from assay.hardware.resident import Resident
from assay.launch.prepare import ReadyRun
from assay.records.status import Status
from assay.store.event_log import Log
from assay.store.processes import this_process
from assay.store.result import begun_result
from assay.store.run_folder import RunFolder
from support.dashboards import client
from support.records import made, say, step


@pytest.fixture
def whole_logs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the runs whose whole log was read, one for each reading."""
    found: list[str] = []
    read = RunFolder.log

    def counted(folder: RunFolder) -> Log:
        found.append(folder.id)
        return read(folder)

    monkeypatch.setattr(RunFolder, "log", counted)
    return found


def test_a_dead_run_is_composed_once_and_again_when_its_log_grows(
    home: Home, ready_run: ReadyRun, whole_logs: list[str]
) -> None:
    folder = made(home, ready_run)
    say(folder, step(0))
    results = Results()
    assert [results.of(folder).steps for _ in range(3)] == [1, 1, 1]
    assert whole_logs == [folder.id]
    say(folder, step(1))
    assert [results.of(folder).steps for _ in range(3)] == [2, 2, 2]
    assert whole_logs == [folder.id] * 2
    assert not folder.result_file.exists()


def test_its_page_does_not_read_the_log_at_each_view(home: Home, ready_run: ReadyRun, whole_logs: list[str]) -> None:
    folder, other = made(home, ready_run), made(home, ready_run)
    say(folder, step(0))
    browser = client(home)
    for _ in range(3):
        assert "killed" in browser.get(f"/runs/{folder.id}?against={other.id}").text
    assert sorted(whole_logs) == sorted([folder.id, other.id])


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
        patch.setattr("assay.dashboard.server_state.is_running", lambda folder: True)
        assert results.of(folder).status is Status.RUNNING
    assert results.of(folder).status is Status.KILLED
    folder.write_result(begun_result(folder.spec()).model_copy(update={"status": Status.DONE}))
    assert results.of(folder).status is Status.DONE


def test_few_results_are_kept(
    home: Home, ready_run: ReadyRun, whole_logs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.dashboard.server_state._MOST_RESULTS", 2)
    first, second, third = (made(home, ready_run) for _ in range(3))
    results = Results()
    for folder in (first, second, third, second, third, first):
        results.of(folder)
    assert whole_logs == [first.id, second.id, third.id, first.id]


@pytest.fixture
def folder(home: Home, ready_run: ReadyRun) -> RunFolder:
    """A run that this process seems to train."""
    found = made(home, ready_run)
    here = this_process(os.getpid())
    assert here is not None
    found.write_process(here)
    return found


@pytest.fixture
def memory_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the processes whose memory is read, which grows by a byte with each reading."""
    asked: list[int] = []

    def read(one: Resident) -> int:
        asked.append(one._pid)
        return len(asked)

    monkeypatch.setattr(Resident, "_measured", read)
    return asked


def test_all_streams_of_a_run_share_one_reader(folder: RunFolder, memory_reads: list[int]) -> None:
    present = Present()
    assert [present.of(folder) for _ in range(200)] == [1] * 200
    assert memory_reads == [os.getpid()]


def test_a_resumed_run_is_read_from_its_new_process(folder: RunFolder, memory_reads: list[int]) -> None:
    present, process = Present(), folder.process()
    assert process is not None
    present.of(folder)
    folder.write_process(process.model_copy(update={"pid": 1}))
    assert present.of(folder) == 2
    assert memory_reads == [process.pid, 1]


def test_a_process_elsewhere_has_a_reason_and_no_memory(folder: RunFolder, memory_reads: list[int]) -> None:
    process = folder.process()
    assert process is not None
    assert why_not(folder) == ""
    folder.write_process(process.model_copy(update={"host": "elsewhere"}))
    assert why_not(folder) == "Its process is on another machine."
    assert Present().of(folder) is None
    spec = folder.spec()
    folder.prepare(spec.model_copy(update={"config": spec.config.model_copy(update={"ranks": 2})}))
    assert why_not(folder) == "Each rank is a process of its own."
    assert memory_reads == []


def test_the_page_of_a_living_run_says_why_its_memory_is_not_read(home: Home, folder: RunFolder) -> None:
    process = folder.process()
    assert process is not None
    assert 'id="now"' in client(home).get(f"/runs/{folder.id}").text
    folder.write_process(process.model_copy(update={"host": "elsewhere"}))
    assert "Its process is on another machine." in client(home).get(f"/runs/{folder.id}").text
    folder.write_result(begun_result(folder.spec()).model_copy(update={"status": Status.DONE}))
    assert 'id="now"' not in client(home).get(f"/runs/{folder.id}").text


def test_the_stream_of_a_living_run_has_its_memory(
    home: Home, folder: RunFolder, memory_reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no batch and has no id, so a browser that returns does not miss any line of the log for it."""
    say(folder, step(0))

    monkeypatch.setattr("assay.dashboard.stream._PAUSE_SECONDS", 0.05)
    Timer(0.3, folder.write_result, [begun_result(folder.spec()).model_copy(update={"status": Status.DONE})]).start()
    said = client(home).get(f"/runs/{folder.id}/events").text
    assert "\n\nevent: now\ndata: 1\n\n" in said
    assert said.count("event: now") == 1
    assert said.index("event: now") < said.index("event: over")
