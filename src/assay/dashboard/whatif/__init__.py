"""The view *What if*: memory, time and fit of a step before it runs, and what to turn on."""

import threading
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from assay.dashboard.pages import page
from assay.dashboard.whatif.answer import WhatIfAnswer, answer, fitting
from assay.dashboard.whatif.content import (
    answer_content,
    answer_values,
    controls,
    fit_content,
    fit_values,
    recommended_values,
)
from assay.dashboard.whatif.own_models import OwnAnswer, OwnQuestion, device_names, read_own
from assay.dashboard.whatif.question import WhatIfQuestion, read
from assay.dashboard.whatif.recommendation import Recommended, Recommender
from assay.errors import UsageError

_LOCK = threading.Lock()


def _view(request: Request) -> Response:
    """The page: its form, and the answer, so that it serves a browser without scripts too."""
    found = _answer(request)
    shown = answer_values(found)
    return page(
        request,
        "what-if.html",
        **controls(found.question),
        models=request.app.state.models,
        summary=shown["summary"],
        **answer_content(found),
        **fit_content(fitting(found.question, request.app.state.home) if found.predicted else ()),
        techniques=found.techniques,
        values_for_script={name: shown[name] for name in ("memory", "stack")},
    )


def _answered(request: Request) -> Response:
    """An answer for the page's script; a question that is not possible is answered by its sentence."""
    return JSONResponse(answer_values(_answer(request)))


def _fitted(request: Request) -> Response:
    """The devices on which a step fits, for the page's script; none where the answer is a sentence."""
    try:
        rows = fitting(read(_query(request)), request.app.state.home)
    except UsageError:
        rows = ()
    return JSONResponse(fit_values(rows))


def _recommended(request: Request) -> Response:
    """The recommendation as far as it is known; a script asks again while its search goes on."""
    try:
        question = read(_query(request))
    except UsageError as reason:
        return JSONResponse(recommended_values(Recommended("refused", refusal=str(reason)), WhatIfQuestion()))
    return JSONResponse(recommended_values(_recommender(request.app).ask(question), question))


def _own(request: Request) -> Response:
    """The page of a model of the user's own; with `part=answer`, its answer alone."""
    models = request.app.state.models
    try:
        # A request of another site, such as an image's address, must not start a process.
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise UsageError("another page asked this; open it from the dashboard")
        asked = read_own(request.query_params, models)
        found = request.app.state.own_models.ask(asked)
        commands = asked.commands
    except UsageError as reason:
        asked, found, commands = OwnQuestion(""), OwnAnswer("refused", str(reason)), ()
    content: dict[str, Any] = {"found": found, "commands": commands}
    if request.query_params.get("part") == "answer":
        return page(request, "what-if-model-answer.html", **content)
    return page(request, "what-if-model.html", models=models, devices=device_names(), asked=asked, **content)


def _answer(request: Request) -> WhatIfAnswer:
    """Return the answer to an address; to one that cannot be read, its sentence over the form of the default."""
    home = request.app.state.home
    try:
        return answer(read(_query(request)), home)
    except UsageError as reason:
        return replace(answer(WhatIfQuestion(), home), predicted=None, refusal=str(reason), read=False)


def _query(request: Request) -> dict[str, str]:
    """Parameters of an address; several optimizations add up."""
    given = request.query_params
    return {**given, "with": "+".join(filter(None, given.getlist("with")))}


def _recommender(app: Starlette) -> Recommender:
    with _LOCK:
        if not hasattr(app.state, "recommender"):
            app.state.recommender = Recommender(app.state.home)
    found: Recommender = app.state.recommender
    return found


routes: list[Route] = [
    Route("/what-if", _view),
    Route("/what-if/answer", _answered),
    Route("/what-if/fit", _fitted),
    Route("/what-if/recommendation", _recommended),
    Route("/what-if/model", _own),
]
"""Addresses of the view."""
