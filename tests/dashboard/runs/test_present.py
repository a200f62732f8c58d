"""Present memory of living runs: one reader for all streams of a run, and a reason where there is none."""

import os
from threading import Timer

import pytest

from assay.config import Home
from assay.dashboard.runs.present import Present, why_not
from assay.hardware.resident import Resident
from assay.launch.prepare import ReadyRun
from assay.records.status import Status
from assay.store.processes import this_process
from assay.store.result import begun_result
from assay.store.run_folder import RunFolder
from support.dashboards import client
from support.records import made, say, step


@pytest.fixture
def folder(home: Home, ready_run: ReadyRun) -> RunFolder:
    """A run that this process seems to train."""
    found = made(home, ready_run)
    here = this_process(os.getpid())
    assert here is not None
    found.write_process(here)
    return found


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the processes whose memory is read, which grows by a byte with each reading."""
    asked: list[int] = []

    def read(one: Resident) -> int:
        asked.append(one._pid)
        return len(asked)

    monkeypatch.setattr(Resident, "_measured", read)
    return asked


def test_all_streams_of_a_run_share_one_reader(folder: RunFolder, reads: list[int]) -> None:
    present = Present()
    assert [present.of(folder) for _ in range(200)] == [1] * 200
    assert reads == [os.getpid()]


def test_a_resumed_run_is_read_from_its_new_process(folder: RunFolder, reads: list[int]) -> None:
    present, process = Present(), folder.process()
    assert process is not None
    present.of(folder)
    folder.write_process(process.model_copy(update={"pid": 1}))
    assert present.of(folder) == 2
    assert reads == [process.pid, 1]


def test_a_process_elsewhere_has_a_reason_and_no_memory(folder: RunFolder, reads: list[int]) -> None:
    process = folder.process()
    assert process is not None
    assert why_not(folder) == ""
    folder.write_process(process.model_copy(update={"host": "elsewhere"}))
    assert why_not(folder) == "Its process is on another machine."
    assert Present().of(folder) is None
    spec = folder.spec()
    folder.prepare(spec.model_copy(update={"config": spec.config.model_copy(update={"ranks": 2})}))
    assert why_not(folder) == "Each rank is a process of its own."
    assert reads == []


def test_the_page_of_a_living_run_says_why_its_memory_is_not_read(home: Home, folder: RunFolder) -> None:
    process = folder.process()
    assert process is not None
    assert 'id="now"' in client(home).get(f"/runs/{folder.id}").text
    folder.write_process(process.model_copy(update={"host": "elsewhere"}))
    assert "Its process is on another machine." in client(home).get(f"/runs/{folder.id}").text
    folder.write_result(begun_result(folder.spec()).model_copy(update={"status": Status.DONE}))
    assert 'id="now"' not in client(home).get(f"/runs/{folder.id}").text


def test_the_stream_of_a_living_run_has_its_memory(
    home: Home, folder: RunFolder, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no batch and has no id, so a browser that returns does not miss any line of the log for it."""
    say(folder, step(0))

    monkeypatch.setattr("assay.dashboard.stream._PAUSE_SECONDS", 0.05)
    Timer(0.3, folder.write_result, [begun_result(folder.spec()).model_copy(update={"status": Status.DONE})]).start()
    said = client(home).get(f"/runs/{folder.id}/events").text
    assert "\n\nevent: now\ndata: 1\n\n" in said
    assert said.count("event: now") == 1
    assert said.index("event: now") < said.index("event: over")
