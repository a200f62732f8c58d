"""The view *Studies*: the list, the page of one study, and a study of the library that is predicted on a GPU.

The page that a study has written is shown in a frame. It may have been imported from anywhere, so its policy allows
no request. It allows one script, that of all pages, by its digest.

For a prediction nothing is trained, read from a disk or fetched. An address names a study of the library and a device,
and no file. All of these studies have texts whose vocabulary is known.
"""

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from assay.api.configuration import on_device
from assay.api.designs import design_study
from assay.config.home import Home
from assay.config.run import ResolvedRun
from assay.dashboard.pages import page
from assay.dashboard.server_state import state_of
from assay.dashboard.stream import follow
from assay.dashboard.study_answer import page_of
from assay.dashboard.study_progress import merge_cells, names_of_cells, planned_cells, progress_of
from assay.dashboard.whatif.question import ABSENT
from assay.errors import UsageError, among, short_text
from assay.hardware.devices import DEVICES
from assay.report.kit.view import page_script
from assay.report.study.predicted import render_predicted, texts
from assay.studies import predicted
from assay.studies.folder import StudyFolder, find
from assay.studies.library import names

_DEVICE = "a100-40gb"
_SCRIPT = b64encode(sha256(page_script().encode()).digest()).decode()
WRITTEN = (
    f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_SCRIPT}'; img-src data:; "
    "frame-ancestors 'self'; sandbox allow-scripts allow-downloads"
)
"""Content-Security-Policy of a page that a study has written: of all scripts, only the pages' own may run."""


class AskedPrediction(NamedTuple):
    """A study of the library and a device."""

    study: str
    device: str


def read(query: Mapping[str, str]) -> AskedPrediction:
    """Return what an address asks for, empty without a study. Raises `UsageError` for an unknown name."""
    study, device = query.get("study", ""), query.get("device") or _DEVICE
    if study and study not in names():
        raise UsageError(f"the library has no study {short_text(study)}{among(study, names())}")
    if device not in ABSENT:
        raise UsageError(f"there is no device {short_text(device)}{among(device, ABSENT)}")
    return AskedPrediction(study, device)


def controls(asked: AskedPrediction) -> dict[str, Any]:
    """Return the menus of the form with what is chosen."""
    devices = [(name, DEVICES[name].name) for name in ABSENT]
    return {"library": names(), "devices": devices, "asked": asked}


def predict_study(asked: AskedPrediction, home: Home) -> predicted.PredictedStudy:
    """Return the answer. Raises `UsageError` if the study cannot be predicted there."""
    study, run = design_study(asked.study, (), None, home)
    base, machine = on_device(run, asked.device)
    return predicted.predicted_study(study.on(base), base, asked.device, machine, ResolvedRun.with_vocabulary)


def every_study(request: Request) -> Response:
    """Page of the list."""
    return page(request, "studies.html", studies=state_of(request).studies.known())


def one_study(request: Request) -> Response:
    """Page of one study; with `part=answer`, its answer alone."""
    state, folder = state_of(request), _folder(request)
    line = state.studies.line(folder)
    running = line.status == "running"
    found = state.answers.of(folder, line.ended if running else None)
    answer: dict[str, Any] = {"answer": found, "running": running, "study": line}
    if request.query_params.get("part") == "answer":
        return page(request, "study-answer.html", **answer)
    batches, offset = state.studies.tail(folder).since(0)
    return page(
        request,
        "study.html",
        cells=planned_cells(names_of_cells(folder), merge_cells(batches)[0], running=running),
        progress=progress_of(batches) if running else "",
        offset=offset,
        written=folder.page_file.is_file(),
        **answer,
    )


def predicted_study(request: Request) -> Response:
    """Page of a study of the library that is predicted on a GPU; a refusal is a sentence on it."""
    asked, found, refusal = AskedPrediction("", ""), {}, ""
    try:
        asked = read(request.query_params)
        if asked.study:
            found = texts(predict_study(asked, request.app.state.home))
    except UsageError as reason:
        refusal = str(reason)
    return page(request, "predicted-study.html", answer=found, refusal=refusal, **controls(asked))


def predicted_page(request: Request) -> Response:
    """The written page of such a study, with heat maps and without any right to run scripts."""
    found = predict_study(read(request.query_params), request.app.state.home)
    return HTMLResponse(render_predicted(found), headers={"content-security-policy": WRITTEN})


def study_events(request: Request) -> Response:
    """Events of one study from an offset, as a stream."""
    folder = _folder(request)
    return follow(request, state_of(request).studies.tail(folder), lambda: not folder.running)


def written_page(request: Request) -> Response:
    """The page that the study has written, which may run no script but that of all pages."""
    headers = {"content-security-policy": WRITTEN}
    return FileResponse(page_of(_folder(request)), media_type="text/html", headers=headers)


def _folder(request: Request) -> StudyFolder:
    return find(request.app.state.home, request.path_params["study"])


routes = [
    Route("/studies", every_study),
    Route("/studies/predicted", predicted_study),
    Route("/studies/predicted/page", predicted_page),
    Route("/studies/{study}", one_study),
    Route("/studies/{study}/events", study_events),
    Route("/studies/{study}/page", written_page),
]
