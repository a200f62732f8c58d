"""A growing log: each line is digested once, each reader receives what it has not, and streams end with its writer."""

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from assay.dashboard import stream
from assay.dashboard.stream import Tail, follow, message
from assay.store.event_log import Event


def served(log: Path, writer_ended: bool) -> Starlette:
    """An application that streams a log of one line."""
    log.write_text(json.dumps({"event": "checkpoint", "step": 1}) + "\n")
    tail = Tail(log, lambda events: [{"steps": [one.step for one in events]}])

    def events(request: Request) -> Response:
        return follow(request, tail, lambda: writer_ended)

    app = Starlette(routes=[Route("/events", events)])
    app.state.memory = SimpleNamespace(ending=threading.Event())
    return app


def test_a_stream_ends_with_the_writer_of_its_log(tmp_path: Path) -> None:
    said = TestClient(served(tmp_path / "log", writer_ended=True)).get("/events").text
    assert '[{"steps":[1]}]' in said
    assert "event: over" in said


def test_a_stream_ends_with_the_server(tmp_path: Path) -> None:
    """Ctrl-C waits for open streams, and a stream that never ends would leave a traceback."""
    app = served(tmp_path / "log", writer_ended=False)
    threading.Timer(0.2, app.state.memory.ending.set).start()
    said = TestClient(app).get("/events").text
    assert '[{"steps":[1]}]' in said
    assert "event: over" not in said


@pytest.mark.parametrize("figure", [float("nan"), float("inf"), -float("inf")])
def test_a_message_is_json_whatever_its_figures(figure: float) -> None:
    said = message([{"loss": figure}], 3).partition("data: ")[2]
    assert json.loads(said, parse_constant=pytest.fail) == [{"loss": None}]


@pytest.mark.parametrize("figure", ["NaN", "Infinity", "1e308", "1e999", '"NaN"'])
def test_a_line_with_a_figure_that_cannot_be_reaches_no_browser(figure: str, tmp_path: Path) -> None:
    app = served(tmp_path / "log", writer_ended=True)
    with (tmp_path / "log").open("a") as log:
        log.write(f'{{"event": "step", "step": 3, "loss": 2.0, "seconds": 1.0, "tokens": 4, "loss_scale": {figure}}}\n')
    said = TestClient(app).get("/events").text
    assert "[1]" in said
    assert "3" not in said.partition("data: ")[2].partition("\n")[0]


def numbers(events: Sequence[Event]) -> list[dict[str, list[int]]]:
    return [{"numbers": [event.step for event in events]}]


def write(path: Path, *steps: int, end: str = "\n") -> None:
    with path.open("a") as log:
        for step in steps:
            log.write(json.dumps({"event": "checkpoint", "step": step}) + end)


def test_a_reader_goes_on_where_it_was(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    followed = stream.Tail(log, numbers)
    assert followed.since(0) == ([], 0)
    write(log, 1, 2)
    batches, offset = followed.since(0)
    assert batches == [{"numbers": [1, 2]}]
    assert offset == log.stat().st_size
    assert followed.since(offset) == ([], offset)
    write(log, 3)
    assert followed.since(offset)[0] == [{"numbers": [3]}]
    assert followed.since(0)[0] == [{"numbers": [1, 2]}, {"numbers": [3]}]
    assert stream.Tail(log, numbers).since(offset)[0] == [
        {"numbers": [1, 2, 3]}
    ]  # a new server sends too much, not less


def test_half_a_line_waits(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    followed = stream.Tail(log, numbers)
    write(log, 1, end="")
    assert followed.since(0) == ([], 0)
    write(log, end="")
    log.write_text(log.read_text() + "\n")
    assert followed.since(0)[0] == [{"numbers": [1]}]


def test_a_long_log_is_read_in_pieces_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "events.jsonl"
    write(log, *range(1000))
    monkeypatch.setattr(stream, "_PIECE_BYTES", 1000)
    read: list[int] = []
    followed = stream.Tail(log, lambda events: read.extend(event.step for event in events) or [])
    for _ in range(3):
        followed.since(0)
    assert read == list(range(1000))


def test_a_line_without_an_end_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "events.jsonl"
    log.write_text("x" * 5500 + "\n")
    write(log, 1)
    monkeypatch.setattr(stream, "_PIECE_BYTES", 1000)
    assert [batch for batch in stream.Tail(log, numbers).since(0)[0] if batch["numbers"]] == [{"numbers": [1]}]


def test_few_logs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_MOST_LOGS", 2)
    tails = stream.Tails()
    first = tails.of(tmp_path / "a", lambda: numbers)
    assert tails.of(tmp_path / "a", lambda: numbers) is first
    tails.of(tmp_path / "b", lambda: numbers)
    tails.of(tmp_path / "c", lambda: numbers)
    assert tails.of(tmp_path / "a", lambda: numbers) is not first
