"""Which runs are cells of studies, and lists in which a study stands for its cells."""

import json
from pathlib import Path

import pytest

from assay.config import Home
from assay.errors import UsageError
from assay.launch.resume import run_to_resume
from assay.launch.spawn import start
from assay.store.cells import fold_cells, studies_by_run
from assay.store.event_log import append
from assay.store.index import Entry
from assay.store.lookup import find
from support.children import Fake, make_ready


def log(home: Home, study: str, *runs: str) -> Path:
    folder = home.reports / study
    folder.mkdir(parents=True)
    append(folder / "events.jsonl", {"event": "plan"}, flushed=False)
    for run in runs:
        append(folder / "events.jsonl", {"event": "cell_start", "cell": "a", "run": run, "wave": 0}, flushed=False)
    return folder / "events.jsonl"


def test_cells_are_those_that_a_log_or_an_old_record_names(home: Home) -> None:
    place = log(home, "one", "a", "b")
    (home.reports / "two").mkdir()
    (home.reports / "two" / "comparison.json").write_text(json.dumps({"cells": [{"result": {"run": "c"}}]}, indent=1))
    (home.reports / "damaged").mkdir()
    (home.reports / "damaged" / "events.jsonl").write_bytes(b"\xff\n{")
    assert studies_by_run(home) == {"a": "one", "b": "one", "c": "two"}
    append(place, {"event": "cell_start", "cell": "a", "run": "d", "wave": 1}, flushed=False)
    assert studies_by_run(home)["d"] == "one"
    assert studies_by_run(Home(home.root / "none")) == {}


def test_a_study_stands_once_in_the_place_of_its_newest_cell() -> None:
    runs = [Entry(run=run, status="done" if run != "c" else "killed", stamp=1, val_loss=3.0) for run in "edcba"]
    found = fold_cells(runs, {"d": "study", "c": "study", "a": "study"})
    assert [one.run for one in found] == ["e", "study", "b"]
    assert (found[1].status, found[1].val_loss) == ("study of 3 runs, 2 done", None)


def test_the_last_run_is_no_cell(home: Home, fake: Fake) -> None:
    with start(make_ready(home), home) as own:
        own.result()
    with start(make_ready(home), home) as cell:
        cell.result()
    assert find(home, "last").id == cell.folder.id
    log(home, "study", cell.folder.id)
    assert find(home, "last").id == own.folder.id
    assert find(home, cell.folder.id).id == cell.folder.id
    own.folder.remove()
    with pytest.raises(UsageError, match="`assay study resume study` continues"):
        run_to_resume(home, "last", ["training.steps=9"])
