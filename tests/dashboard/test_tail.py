"""Following a log: every line is digested once, and each reader receives what it has not."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from assay.dashboard import tail
from assay.store.event_log import Event


def numbers(events: Sequence[Event]) -> list[dict[str, list[int]]]:
    return [{"numbers": [event.step for event in events]}]


def write(path: Path, *steps: int, end: str = "\n") -> None:
    with path.open("a") as log:
        for step in steps:
            log.write(json.dumps({"event": "checkpoint", "step": step}) + end)


def test_a_reader_goes_on_where_it_was(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    followed = tail.Tail(log, numbers)
    assert followed.since(0) == ([], 0)
    write(log, 1, 2)
    batches, offset = followed.since(0)
    assert batches == [{"numbers": [1, 2]}]
    assert offset == log.stat().st_size
    assert followed.since(offset) == ([], offset)
    write(log, 3)
    assert followed.since(offset)[0] == [{"numbers": [3]}]
    assert followed.since(0)[0] == [{"numbers": [1, 2]}, {"numbers": [3]}]
    assert tail.Tail(log, numbers).since(offset)[0] == [{"numbers": [1, 2, 3]}]  # a new server sends too much, not less


def test_half_a_line_waits(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    followed = tail.Tail(log, numbers)
    write(log, 1, end="")
    assert followed.since(0) == ([], 0)
    write(log, end="")
    log.write_text(log.read_text() + "\n")
    assert followed.since(0)[0] == [{"numbers": [1]}]


def test_a_long_log_is_read_in_pieces_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "events.jsonl"
    write(log, *range(1000))
    monkeypatch.setattr(tail, "_PIECE_BYTES", 1000)
    read: list[int] = []
    followed = tail.Tail(log, lambda events: read.extend(event.step for event in events) or [])
    for _ in range(3):
        followed.since(0)
    assert read == list(range(1000))


def test_a_line_without_an_end_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "events.jsonl"
    log.write_text("x" * 5500 + "\n")
    write(log, 1)
    monkeypatch.setattr(tail, "_PIECE_BYTES", 1000)
    assert [batch for batch in tail.Tail(log, numbers).since(0)[0] if batch["numbers"]] == [{"numbers": [1]}]


def test_few_logs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "_MOST_LOGS", 2)
    tails = tail.Tails()
    first = tails.of(tmp_path / "a", lambda: numbers)
    assert tails.of(tmp_path / "a", lambda: numbers) is first
    tails.of(tmp_path / "b", lambda: numbers)
    tails.of(tmp_path / "c", lambda: numbers)
    assert tails.of(tmp_path / "a", lambda: numbers) is not first
