"""Dashboards as tests ask them: a client of the application, the messages of a stream, and a study that goes on."""

import json
from typing import Any

from starlette.testclient import TestClient

from assay.config import Home
from assay.dashboard.app import build_app
from assay.records.study import ComparisonRecord
from assay.store.run_folder import RunFolder, RunSpec
from assay.studies.folder import StudyFolder, StudyPlan


def client(home: Home, token: str | None = None, **options: Any) -> TestClient:
    """A browser on this machine, which keeps cookies and follows no redirect."""
    return TestClient(build_app(home.root, token), base_url="http://127.0.0.1:8765", follow_redirects=False, **options)


def batches(text: str) -> list[dict[str, Any]]:
    """The batches of a stream that has ended."""
    found = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [batch for message in found for batch in json.loads(message)]


def planned(record: ComparisonRecord) -> StudyPlan:
    """The plan of a study that has this record."""
    cells = tuple(one.cell for one in record.cells)
    return StudyPlan(
        **{name: getattr(record, name) for name in ("id", "created", "kind", "title", "base", "seeds", "treatments")},
        protocol=record.protocol,
        waves=tuple(tuple(cell for cell in cells if cell.seed == seed) for seed in record.seeds),
    )


def begin_study(home: Home, record: ComparisonRecord) -> StudyFolder:
    """The folder of a study of which nothing has run."""
    folder = StudyFolder(home.reports / record.id)
    folder.path.mkdir(parents=True)
    folder.write_plan(planned(record))
    folder.append({"event": "plan"})
    return folder


def end_cell(home: Home, folder: StudyFolder, record: ComparisonRecord, number: int) -> None:
    """A cell of the study starts and ends, with its result in the home."""
    one = record.cells[number]
    run = RunFolder(home.runs / f"20261101-10{number:04d}-{number:06d}-cell")
    created = {"created": "2026-01-01", "identity": one.result.identity}
    run.prepare(RunSpec(id=run.id, **created, config=one.cell.run, data_folder=""))
    run.write_result(one.result.model_copy(update={"run": run.id}))
    named = {"cell": one.cell.name, "run": run.id, "wave": one.wave}
    for event in ({"event": "cell_start", **named}, {"event": "cell_end", **named, "status": "done"}):
        folder.append(event)
