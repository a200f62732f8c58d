from pathlib import Path

from assay.records.events import LogEvent
from assay.store.event_log import append, read_log, read_since


def test_a_growing_log_is_read_on_from_where_it_ended(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    assert read_since(log, 0) == ([], 0)
    log.write_bytes(b'{"event":"a"}\nnot an event\n{"event":"b"}\n{"event":"c')
    events, offset = read_since(log, 0)
    assert [event.event for event in events] == ["a", "b"]
    assert read_since(log, offset) == ([], offset)
    with log.open("ab") as more:
        more.write(b'"}\n{"event":"d"}\n')
    events, offset = read_since(log, offset)
    assert [event.event for event in events] == ["c", "d"]
    assert offset == log.stat().st_size


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    append(log, {"event": "a"})
    append(log, {"event": "b"})
    content = log.read_bytes()
    for length in range(len(content) + 1):
        log.write_bytes(content[:length])
        before = read_log(log).events
        append(log, {"event": "c"})
        assert read_log(log).events == [*before, LogEvent(event="c")]
