"""Digests: what was sealed opens again, and no byte of it can be changed unnoticed."""

import json
from pathlib import Path

import pytest

from assay.files import open_file, open_line, seal_file, seal_line
from assay.store.event_log import parse_event, read_log

RECORD = json.dumps({"run": "a", "steps": 12, "nested": {"loss": 2.5, "words": ["über", "\n"]}}, indent=1)
LINE = b'{"event": "step", "step": 3, "loss": 2.5, "seconds": 0.1, "tokens": 64}\n'


def test_a_record_opens_again() -> None:
    sealed = seal_file(RECORD)
    assert json.loads(sealed)["digest"]
    assert open_file(sealed).decode() == RECORD


def test_a_record_without_a_digest_is_read_as_it_is() -> None:
    assert open_file(RECORD.encode()).decode() == RECORD


@pytest.mark.parametrize("bit", [0, 1, 6])
def test_no_byte_of_a_record_changes_unnoticed(bit: int) -> None:
    """It is refused, or is no record any more: an unknown key, or no JSON."""
    sealed = seal_file(RECORD)
    for place in range(len(sealed) - 1):
        damaged = bytearray(sealed)
        damaged[place] ^= 1 << bit
        try:
            values = json.loads(open_file(bytes(damaged)))
        except ValueError:
            continue
        assert set(values) - {"run", "steps", "nested"}, damaged


@pytest.mark.parametrize("bit", [0, 1, 6])
def test_no_byte_of_a_line_changes_unnoticed(bit: int) -> None:
    """What is still believed has its figures; only the checksum's own name may have suffered."""
    sealed = seal_line(LINE)
    assert open_line(sealed.rstrip(b"\n")) == LINE.rstrip(b"\n")
    whole = json.loads(LINE)
    for place in range(len(sealed) - 1):
        damaged = bytearray(sealed)
        damaged[place] ^= 1 << bit
        event = parse_event(bytes(damaged[:-1]))
        assert event is None or {name: event.line().get(name) for name in whole} == whole


def test_a_damaged_line_break_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(seal_line(LINE) * 3)
    assert (len(read_log(path).events), read_log(path).damaged) == (3, 0)
    content = bytearray(path.read_bytes())
    content[-1] = ord("x")
    path.write_bytes(content)
    assert (len(read_log(path).events), read_log(path).damaged) == (2, 1)
    content[len(seal_line(LINE)) - 1] = ord("x")
    path.write_bytes(content)
    assert (len(read_log(path).events), read_log(path).damaged) == (0, 2)
