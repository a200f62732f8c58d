import errno
import json
import math
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.errors import StorageError
from assay.files import open_line
from assay.platforms import is_closed
from assay.worker.processes import channel as channel_module
from assay.worker.processes.channel import ParentChannel, when_closed


class Line:
    """A channel and the parent's ends of its pipes."""

    def __init__(self, path: Path, *, in_turns: bool = False) -> None:
        self.heard, out = os.pipe()
        requests, self.say = os.pipe()
        self.channel = ParentChannel(path, out, requests, in_turns=in_turns)

    def read(self) -> dict[str, object]:
        line: dict[str, object] = json.loads(os.read(self.heard, 65536).split(b"\n")[0])
        return line


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


@pytest.fixture
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(open_line(line)) for line in path.read_bytes().splitlines()]


def test_an_event_reaches_the_parent_and_the_file(events: Path) -> None:
    line = Line(events)
    line.channel.event("step", step=3, loss=2.5)
    assert line.read() == {"event": "step", "step": 3, "loss": 2.5}
    assert lines(events) == [{"event": "step", "step": 3, "loss": 2.5}]


def test_a_number_that_json_has_no_word_for_is_null(events: Path) -> None:
    line = Line(events)
    line.channel.event("step", loss=math.nan, norms=[1.0, -math.inf], more={"x": math.inf})
    assert lines(events) == [{"event": "step", "loss": None, "norms": [1.0, None], "more": {"x": None}}]


@pytest.mark.parametrize("size", [3, 70_000, 200_000])
def test_a_torn_last_line_is_cut_off_before_anything_is_added(events: Path, size: int) -> None:
    events.write_bytes(b'{"event": "start"}\n' + b'{"event": "' + b"x" * size)
    Line(events).channel.event("end")
    assert lines(events) == [{"event": "start"}, {"event": "end"}]


def test_a_written_word_stops_a_run_where_no_signal_can(events: Path) -> None:
    line = Line(events, in_turns=True)
    os.write(line.say, b"go\n")
    assert line.channel.wait("block") == "go"
    os.write(line.say, b"stop\n")
    assert line.channel.wait("block") == ""
    assert line.channel.interrupted


@pytest.mark.parametrize(("before", "after"), [(b"", b""), (b"torn", b""), (b"{}\n", b"{}\n")])
def test_nothing_whole_is_lost(events: Path, before: bytes, after: bytes) -> None:
    events.write_bytes(before)
    Line(events)
    assert events.read_bytes() == after


def test_a_full_disk_leaves_no_half_line_and_the_parent_hears_the_event(
    events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line(events)
    line.channel.event("first")
    line.read()
    whole = channel_module._write

    def full(descriptor: int, content: bytes) -> None:
        if os.fstat(descriptor).st_size == 0 and not os.path.samestat(os.fstat(descriptor), events.stat()):
            whole(descriptor, content)
        else:
            os.write(descriptor, content[:5])
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(channel_module, "_write", full)
    with pytest.raises(StorageError, match="No space left"):
        line.channel.event("second")
    assert line.read() == {"event": "second"}
    monkeypatch.setattr(channel_module, "_write", whole)
    line.channel.event("third")
    assert lines(events) == [{"event": "first"}, {"event": "third"}]


def test_turns_are_asked_for_and_granted(events: Path) -> None:
    line = Line(events, in_turns=True)
    done = threading.Event()

    def child() -> None:
        line.channel.wait("block")
        done.set()

    threading.Thread(target=child, daemon=True).start()
    assert line.read() == {"event": "yield", "next": "block"}
    assert not done.wait(0.1)
    os.write(line.say, b"go\n")
    assert done.wait(5)
    assert events.read_bytes() == b""


def test_without_turns_nothing_waits(events: Path) -> None:
    line = Line(events)
    line.channel.wait("block")
    assert not line.channel.interrupted


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_waiting(events: Path, number: signal.Signals) -> None:
    line = Line(events, in_turns=True)
    line.channel.stop_on_signals()
    assert not line.channel.interrupted
    threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
    line.channel.wait("block")
    assert line.channel.interrupted
    line.channel.wait("finish")


def test_a_signal_just_before_the_waiting_ends_it_soon(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handler runs when the wait looks up: until then nothing has put a word into the queue."""
    line = Line(events, in_turns=True)
    monkeypatch.setattr(channel_module, "_WAKING_SECONDS", 0.05)
    waiting = threading.Thread(target=line.channel.wait, args=("block",), daemon=True)
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    line.channel.interrupted = True
    waiting.join(30)
    assert not waiting.is_alive()


def test_a_parent_that_does_not_listen_any_more_is_no_error(events: Path) -> None:
    line = Line(events)
    os.close(line.heard)
    line.channel.event("step")
    assert lines(events) == [{"event": "step"}]


def test_a_lifeline_is_closed_once_nobody_holds_it() -> None:
    gone = threading.Event()
    watched, held = os.pipe()
    when_closed(watched, gone.set)
    os.write(held, b"a word that nobody reads\n")
    assert not is_closed(watched)
    assert not gone.wait(0.1)
    os.close(held)
    assert is_closed(watched)
    assert gone.wait(5)
