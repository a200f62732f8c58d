"""Records of runs as a store holds them: a folder with its events, and a result."""

import json

from assay.config import Home
from assay.files import seal_line
from assay.launch.prepare import ReadyRun
from assay.records.run import RunResult
from assay.records.status import Status
from assay.store.result import begun_result
from assay.store.run_folder import RunFolder, RunSpec, new_id
from support.children import make_ready


def made(home: Home, ready: ReadyRun) -> RunFolder:
    folder = RunFolder(home.runs / new_id(ready.identity))
    spec = {"id": folder.id, "created": "2026-01-01", "identity": ready.identity, "data_folder": "", "predicted": None}
    folder.prepare(RunSpec(**spec, config=ready.run))
    return folder


def say(folder: RunFolder, *events: dict[str, object]) -> None:
    with folder.events_file.open("ab") as stream:
        stream.writelines(seal_line(json.dumps(event).encode() + b"\n") for event in events)


def step(index: int, **facts: object) -> dict[str, object]:
    return {
        "event": "step",
        "step": index,
        "loss": 3.0 - index,
        "seconds": 0.1,
        "tokens": 16,
        "phase": "steady",
        **facts,
    }


def result_of(home: Home, run: str, status: Status = Status.DONE, created: str = "2026-01-01") -> RunResult:
    ready = make_ready(home)
    spec = RunSpec(id=run, created=created, identity=ready.identity, config=ready.run, data_folder="")
    return begun_result(spec).model_copy(update={"status": status})
