"""The logs of a study and of its waves, each cut anywhere: a resume runs exactly the cells that the cut has lost.

Every 307th byte is in the quick suite, and every 11th in the slow one. Lines are longer, so cuts fall into all parts of
them. `tests/store/test_event_log` reads a log cut at every byte.
"""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from assay.config import Home
from assay.executors.base import News, Started
from assay.executors.elsewhere import WaveFiles
from assay.records.events import LogEvent
from assay.records.study import ComparisonRecord
from assay.store.event_log import parse_event
from assay.store.run_folder import RunFolder
from assay.studies.execution.fold import Mode
from assay.studies.folder import find
from campaign.studies import by_name, recorded, resumed, stays
from support.fake_studies import CELLS, run
from support.instant_cells import instant_cells

EVERY = [pytest.param(307, id="some"), pytest.param(11, id="more", marks=pytest.mark.slow)]
"""Bytes from one cut to the next."""


@pytest.fixture(autouse=True)
def _instant(monkeypatch: pytest.MonkeyPatch) -> None:
    instant_cells(monkeypatch)


def copies(whole: Home, lengths: Iterable[int]) -> Iterator[tuple[int, Home]]:
    """For each length a new copy of the home, whose study has no record."""
    for length in lengths:
        home = Home(shutil.copytree(whole.root, whole.root.with_name("cut")))
        find(home, "last").record_file.unlink()
        yield length, home
        shutil.rmtree(home.root)


def cut(path: Path, length: int) -> None:
    path.write_bytes(path.read_bytes()[:length])


def whole_events(content: bytes) -> list[LogEvent]:
    """The slow reference: whole lines, the last one perhaps without its line break."""
    return [event for line in content.splitlines() if (event := parse_event(line)) is not None]


def started(events: Iterable[LogEvent]) -> set[str]:
    return {event.cell for event in events if event.event == "cell_start"}


def goes_on(home: Home, kept: set[str], before: ComparisonRecord) -> ComparisonRecord:
    """Resume a study: the cells that are kept have their runs, the others run once, and then nothing is left."""
    heard: list[News] = []
    record = resumed(home, heard)
    names = sorted(cell.name for cell in CELLS)
    assert sorted(one.cell.name for one in record.cells) == names
    assert sorted(one.cell.name for one in heard if isinstance(one, Started)) == sorted(set(names) - kept)
    then, now = by_name(before), by_name(record)
    assert {name for name in names if now[name][0] == then[name][0]} == kept
    stays(home, record)
    return record


@pytest.mark.parametrize("every", EVERY)
def test_the_log_of_a_study_cut_anywhere(tmp_path: Path, every: int) -> None:
    whole = Home(tmp_path / "whole")
    before = run(whole, "local")
    content = find(whole, "last").events_file.read_bytes()
    for length, home in copies(whole, range(0, len(content) + 1, every)):
        cut(find(home, "last").events_file, length)
        goes_on(home, started(whole_events(content[:length])), before)


@pytest.mark.parametrize("every", EVERY)
def test_events_that_the_log_of_a_study_has_lost_are_in_those_of_its_waves(tmp_path: Path, every: int) -> None:
    whole = Home(tmp_path / "whole")
    before = run(whole, "here")
    content = find(whole, "last").events_file.read_bytes()
    for length, home in copies(whole, range(0, len(content) + 1, every)):
        cut(find(home, "last").events_file, length)
        record = goes_on(home, {cell.name for cell in CELLS}, before)
        assert by_name(record) == by_name(before)
        assert sorted(record.rounds, key=str) == sorted(before.rounds, key=str)


@pytest.mark.parametrize("every", [pytest.param(7, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_a_line_of_the_log_that_is_damaged_is_in_that_of_its_wave(tmp_path: Path, every: int) -> None:
    whole = Home(tmp_path / "whole")
    before = run(whole, "here")
    lines = find(whole, "last").events_file.read_bytes().splitlines(keepends=True)
    for number, home in copies(whole, range(0, len(lines), every)):
        damaged = [*lines[:number], lines[number].replace(b'"', b"'", 1), *lines[number + 1 :]]
        find(home, "last").events_file.write_bytes(b"".join(damaged))
        record = goes_on(home, {cell.name for cell in CELLS}, before)
        assert by_name(record) == by_name(before)
        assert sorted(record.rounds, key=str) == sorted(before.rounds, key=str)


@pytest.mark.parametrize("every", EVERY)
def test_the_log_of_a_wave_cut_anywhere(tmp_path: Path, every: int) -> None:
    """The coordinator was lost before it could copy anything."""
    whole = Home(tmp_path / "whole")
    before = run(whole, "here")
    folder = find(whole, "last")
    folder.events_file.write_bytes(folder.events_file.read_bytes().splitlines(keepends=True)[0])
    logs = [WaveFiles(folder.path, number).log for number in range(2)]
    contents = [log.read_bytes() for log in logs]
    for wave, log in enumerate(logs):
        others = started(whole_events(contents[1 - wave]))
        for length, home in copies(whole, range(0, len(contents[wave]) + 1, every)):
            cut(find(home, "last").path / "waves" / log.name, length)
            goes_on(home, others | started(whole_events(contents[wave][:length])), before)


def test_a_wave_that_was_repeated_under_its_number_has_its_rounds(tmp_path: Path) -> None:
    """Rounds are the same in every attempt at a wave, and only those of the last one count."""
    home = Home(tmp_path)
    run(home, "here")
    folder = find(home, "last")
    first = folder.events_file.read_bytes()
    forced = resumed(home, mode=Mode.FORCE)
    folder.events_file.write_bytes(first)  # the coordinator of the second attempt was lost
    folder.record_file.unlink()
    resumed(home)
    assert by_name(recorded(home)) == by_name(forced)
    assert sorted(recorded(home).rounds, key=str) == sorted(forced.rounds, key=str)


def test_a_killed_run_runs_again_even_if_its_log_is_damaged(tmp_path: Path) -> None:
    home = Home(tmp_path)
    before = run(home, "local")
    lost = before.cells[2]
    folder = RunFolder(home.runs / lost.result.run)
    folder.result_file.unlink()
    folder.events_file.write_bytes(b"\0" * 20 + b"\n" + folder.events_file.read_bytes())
    goes_on(home, {cell.name for cell in CELLS} - {lost.cell.name}, before)
