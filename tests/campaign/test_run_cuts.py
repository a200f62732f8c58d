"""The log of a run, cut at every byte: what is left of it counts, it is not called damaged, and a run goes on after it.

A run also resumes bit for bit from a log that ends within a line, without its line break, and with it. A sample of the
bytes and lines is in the quick suite, all of them in the slow one.
"""

import shutil
from pathlib import Path

import pytest

from assay.config import Home
from assay.records.events import event_of
from assay.records.status import Status
from assay.store.event_log import Event, parse_event, read_log
from assay.store.result import settle
from assay.store.run_folder import RunFolder
from assay.worker.processes.channel import _EventsFile, _line
from campaign.sound import Sound, goes_on_bit_for_bit

ALL = pytest.param(1, id="all", marks=pytest.mark.slow)
BYTES = [pytest.param(97, id="some"), ALL]
"""Bytes from one cut to the next; 97 is a prime, so that cuts fall into all parts of a line."""
LINES = [pytest.param(19, id="some"), ALL]
"""Lines from one cut to the next."""
LATER: Event = {"event": "phase", "name": "later"}


def copied(sound: Sound, place: Path) -> tuple[RunFolder, bytes]:
    """A new copy of the run that was killed, as if nobody had looked at it, and its log."""
    home = Home(shutil.copytree(sound.home.root, place / "home"))
    folder = RunFolder(home.runs / sound.killed)
    folder.result_file.unlink(missing_ok=True)
    return folder, folder.events_file.read_bytes()


@pytest.mark.parametrize("every", BYTES)
def test_a_log_that_is_cut_at_any_byte_is_read_as_far_as_it_is_whole(sound: Sound, tmp_path: Path, every: int) -> None:
    folder, content = copied(sound, tmp_path)
    assert len(content) > 1000
    for length in range(0, len(content) + 1, every):
        left = content[:length]
        folder.events_file.write_bytes(left)
        log = read_log(folder.events_file)
        whole = [event for line in left.splitlines() if (event := parse_event(line)) is not None]
        assert (log.events, log.damaged) == (whole, 0), length
        assert len(whole) in (left.count(b"\n"), left.count(b"\n") + 1)


def test_figures_of_a_run_cut_at_any_line_are_those_of_its_steps(sound: Sound, tmp_path: Path) -> None:
    folder, content = copied(sound, tmp_path)
    lines = content.splitlines(keepends=True)
    for number in range(len(lines) + 1):
        left = b"".join(lines[:number])
        for end in (left, left[:-1], left + b'{"event": "st'):
            folder.events_file.write_bytes(end)
            steps = [one for line in left.splitlines() if (one := parse_event(line)) and one.event == "step"]
            found = settle(folder, recorded=False)
            assert found.status is Status.KILLED
            assert found.steps == len(steps)
            assert found.train_loss == (steps[-1].loss if steps else None)


@pytest.mark.parametrize("every", BYTES)
def test_an_event_after_a_cut_at_any_byte_is_a_line_of_its_own(sound: Sound, tmp_path: Path, every: int) -> None:
    folder, content = copied(sound, tmp_path)
    for length in range(0, len(content) + 1, every):
        folder.events_file.write_bytes(content[:length])
        _EventsFile(folder.events_file).append(_line(LATER))
        log = read_log(folder.events_file)
        kept = [parse_event(line) for line in content[:length].split(b"\n")[:-1]]
        assert (log.events, log.damaged) == ([*kept, event_of(LATER)], 0), length


@pytest.mark.parametrize("every", LINES)
def test_a_run_whose_log_was_cut_goes_on_bit_for_bit(sound: Sound, tmp_path: Path, every: int) -> None:
    whole = RunFolder(sound.home.runs / sound.done)
    folder, content = copied(sound, tmp_path)
    lines = content.splitlines(keepends=True)
    for number in range(0, len(lines), every):
        until = b"".join(lines[:number])
        for left in (until, until + lines[number][:-1], until + lines[number][: len(lines[number]) // 2]):
            shutil.rmtree(folder.path.parent.parent)
            folder, _ = copied(sound, tmp_path)
            folder.events_file.write_bytes(left)
            goes_on_bit_for_bit(folder, whole)
