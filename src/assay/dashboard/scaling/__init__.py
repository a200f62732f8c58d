"""The view *Scaling*: the best size and data for a budget, under published laws and those of the home's points."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from assay.config.home import Home
from assay.dashboard.pages import page, render_page
from assay.dashboard.scaling.answer import LawPage, answer
from assay.dashboard.scaling.own_laws import faults, files, studies
from assay.dashboard.scaling.question import LEAST_POWER, MOST_POWER, POINTS, STUDY, LawQuestion, read
from assay.errors import UsageError
from assay.hardware.devices import DEVICES
from assay.scaling.published import FRONTIERS


def _view(request: Request) -> Response:
    """The page: its form and the answer, so that it serves a browser without scripts too."""
    home = request.app.state.home
    named = [(f"{STUDY}{one}", title) for one, title in studies(home).items()]
    question, found, refusal = _asked(request)
    return page(
        request,
        "scaling.html",
        question=question,
        laws=list(FRONTIERS),
        own=[("studies of this home", named), ("files of points", [(f"{POINTS}{one}", one) for one in files(home)])],
        devices=[(name, one.name) for name, one in DEVICES.items()],
        powers=(LEAST_POWER, MOST_POWER),
        figures=_figures(found),
        folder=home.points,
        faults=faults(home),
        **_content(question, found, refusal, home),
    )


def _answered(request: Request) -> Response:
    """An answer for the page's script; a question that is not possible is answered by its sentence."""
    question, found, refusal = _asked(request)
    html = render_page("scaling-answer.html", **_content(question, found, refusal, request.app.state.home))
    rows = dict(found.facts.rows) if found else {}
    said = f"N {rows['parameters, N']}, D {rows['tokens, D']}." if "tokens, D" in rows else refusal
    return JSONResponse({"query": question.query if found else None, "html": html, "said": said, **_figures(found)})


def _asked(request: Request) -> tuple[LawQuestion, LawPage | None, str]:
    """Return the question of an address, its answer, and the sentence if there is none."""
    question = LawQuestion()
    try:
        question = read(request.query_params)
        return question, answer(question, request.app.state.home), ""
    except UsageError as reason:
        return question, None, str(reason)


def _content(question: LawQuestion, found: LawPage | None, refusal: str, home: Home) -> dict[str, Any]:
    report = () if found is None else found.report
    return {
        "refusal": refusal,
        "facts": None if found is None else found.facts,
        "report": report,
        "command": question.command(home),
    }


def _figures(found: LawPage | None) -> dict[str, Any]:
    return {"sizes": None, "losses": None} if found is None else {"sizes": found.sizes, "losses": found.losses}


routes: list[Route] = [Route("/scaling", _view), Route("/scaling/answer", _answered)]
"""Addresses of the view."""
