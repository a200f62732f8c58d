"""Bytes of a run's files are changed anywhere: what is listed is true or called damaged, and a resume is bit for bit.

Each case draws a file, a place in it and what happens there from its number, so that a case that fails can be had
again. A few are in the quick suite, 200 in the slow one.
"""

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.config import Home
from assay.records.status import Status
from assay.store.index import Entry
from assay.store.run_folder import RunFolder
from campaign.sound import KILLED_AFTER, Sound, goes_on_bit_for_bit, listed

QUICK, ALL = 8, 200
TARGETS = (
    *("run.json", "result.json", "events.jsonl", "events.jsonl", "store.sqlite"),
    *(f"step-00000008/{name}" for name in ("model.safetensors", "optimizer.safetensors", "state.json")),
    *(f"step-00000004/{name}" for name in ("model.safetensors", "state.json")),
)


def damaged(content: bytes, draw: random.Random) -> bytes:
    """The content with one bit or byte changed, some bytes lost to zeros, or the end missing."""
    place = draw.randrange(len(content))
    change: Callable[[bytes], bytes] = draw.choice(
        [
            lambda whole: whole[:place] + bytes([whole[place] ^ 1 << draw.randrange(8)]) + whole[place + 1 :],
            lambda whole: whole[:place] + bytes([draw.randrange(256)]) + whole[place + 1 :],
            lambda whole: (whole[:place] + bytes(64) + whole[place + 64 :])[: len(whole)],
            lambda whole: whole[:place],
        ]
    )
    return change(content)


def cases(count: int) -> list[Any]:
    return [pytest.param(one, marks=() if one < QUICK else pytest.mark.slow) for one in range(count)]


@pytest.mark.parametrize("number", cases(ALL))
def test_damage_is_found_or_does_no_harm(sound: Sound, tmp_path: Path, number: int) -> None:
    draw = random.Random(number)
    target = TARGETS[number % len(TARGETS)]
    truth = sound.entries()
    home = Home(shutil.copytree(sound.home.root, tmp_path / "home"))
    run = sound.done if target == "result.json" else sound.killed
    path = _path(home, run, target)
    path.write_bytes(damaged(path.read_bytes(), draw))
    _list_is_true(target, run, truth, listed(home))
    if target not in ("run.json", "result.json"):
        goes_on_bit_for_bit(RunFolder(home.runs / run), RunFolder(sound.home.runs / sound.done))


def _path(home: Home, run: str, target: str) -> Path:
    if target == "store.sqlite":
        with sqlite3.connect(home.store) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return home.store
    if target not in ("run.json", "result.json", "events.jsonl"):
        return home.runs / run / "checkpoints" / target
    for path in home.root.glob("store.sqlite*"):
        path.unlink()  # or the list would be right for not looking
    if target != "result.json":
        (home.runs / run / "result.json").unlink(missing_ok=True)
    return home.runs / run / target


def _list_is_true(target: str, run: str, truth: dict[str, Entry], found: dict[str, Entry]) -> None:
    """All but the damaged run are listed as they are; that one as it is, or as damaged with what is left."""
    assert found.keys() == truth.keys()
    for name in found.keys() - {run}:
        assert _figures(found[name]) == _figures(truth[name])
    if found[run].status == Status.DAMAGED:
        assert target in ("run.json", "result.json", "events.jsonl")
        return
    if target == "events.jsonl" and found[run].steps != truth[run].steps:
        assert (found[run].steps or 0) < KILLED_AFTER, "a log without its end is that of an earlier kill"
        return
    assert _figures(found[run]) == _figures(truth[run])


def _figures(entry: Entry) -> Entry:
    """Without what is another one in each home, and what only the process knew."""
    return entry._replace(stamp=0)
