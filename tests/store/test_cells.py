"""Which runs are cells of studies, and lists in which a study stands for its cells."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from assay.config import Home, ResolvedRun
from assay.errors import UsageError
from assay.files import seal_file
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


def begun(place: Path, cell: str, time: float) -> None:
    append(place, {"event": "turn", "cell": cell, "piece": "start", "number": 0, "time": time}, flushed=False)


def planned(home: Home, study: str, *runs: ResolvedRun) -> None:
    plan = {"waves": [[{"treatment": "a", "run": run.model_dump(mode="json")} for run in runs]]}
    (home.reports / study / "study.json").write_bytes(seal_file(json.dumps(plan, indent=1)))


def test_a_run_that_was_killed_before_its_study_named_it_is_a_cell(home: Home, fake: Fake) -> None:
    ready = make_ready(home)
    place, now = log(home, "study", "another"), time.time()
    begun(place, "a", now)
    begun(place, "a", now + 15)
    append(place, {"event": "cell_start", "cell": "a", "run": "another", "wave": 0}, flushed=False)
    with start(ready, home) as lost, start(replace(ready, run=ready.run.model_copy(update={"seed": 7})), home) as own:
        both = {lost.folder.id, own.folder.id}
    assert not both & studies_by_run(home).keys(), "the study has no plan"
    planned(home, "study", ready.run)
    assert studies_by_run(home) == {"another": "study", lost.folder.id: "study"}
    log(home, "whole", lost.folder.id)
    assert studies_by_run(home)[lost.folder.id] == "whole", "a log that names a run is right"


@pytest.mark.parametrize("ago", [-70.0, 5.0, float("1e300")])
def test_a_run_of_another_time_is_no_cell(home: Home, fake: Fake, ago: float) -> None:
    ready = make_ready(home)
    begun(log(home, "study"), "a", time.time() + ago)
    planned(home, "study", ready.run)
    with start(ready, home) as own:
        own.result()
    assert studies_by_run(home) == {}


@pytest.mark.parametrize("plan", ["{", "[]", '{"waves": 3}', '{"waves": [3, [4]]}'])
def test_a_damaged_plan_has_no_cells(home: Home, fake: Fake, plan: str) -> None:
    begun(log(home, "study"), "a", time.time())
    (home.reports / "study" / "study.json").write_text(plan)
    with start(make_ready(home), home) as own:
        own.result()
    assert studies_by_run(home) == {}


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
