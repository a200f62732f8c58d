"""The web application: the routes of all views behind one guard, with the files that pages refer to.

A view finds the home as `request.app.state.home`. An error that the user can correct becomes a page with its sentence.
"""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from assay.config.home import Home
from assay.dashboard import scaling, whatif
from assay.dashboard.guard import Guard
from assay.dashboard.pages import page, render_page
from assay.dashboard.runs import views as runs
from assay.dashboard.server_state import ServerState
from assay.dashboard.studies import views as studies
from assay.errors import StorageError, UsageError
from assay.report.kit.drawing import DARK, LIGHT, variables

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

_STATIC = Path(__file__).parent / "static"
_PLOTLY = "package_data/plotly.min.js"
"""Path of the browser's library within the installed package `plotly`."""


def build_app(home: Path, token: str | None = None) -> Starlette:
    """Return the application for a home; with a `token`, only requests that know it are answered."""
    routes: list[BaseRoute] = [
        Route("/static/plotly.min.js", _plotly),
        Route("/static/palette.css", _palette),
        Mount("/static", StaticFiles(directory=_STATIC)),
        *(route for view in (runs, studies, whatif, scaling) for route in view.routes),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, token=token)],
        exception_handlers={UsageError: _refused, StorageError: _refused, HTTPException: _refused, Exception: _failed},
    )
    app.state.home = Home(home)
    app.state.memory = ServerState(app.state.home)
    return app


def _plotly(request: Request) -> Response:
    """Plotly as it ships with its Python package, which is not imported for it."""
    found = importlib.util.find_spec("plotly")
    if found is None or found.origin is None:
        raise HTTPException(404, "plotly is not installed")
    headers = {"cache-control": "private, max-age=86400"}
    return FileResponse(Path(found.origin).parent / _PLOTLY, media_type="text/javascript", headers=headers)


def _palette(request: Request) -> Response:
    """Colours of light and dark, with the series of all figures here and on written pages."""
    text = render_page("palette.css", light=variables(LIGHT), dark=variables(DARK))
    return Response(text, media_type="text/css")


async def _refused(request: Request, error: Exception) -> Response:
    """Page of an error that the reader can correct, with the status that it names; 404 for a missing run or study."""
    code = error.status_code if isinstance(error, HTTPException) else 404
    sentence = error.detail if isinstance(error, HTTPException) else str(error)
    return page(request, "error.html", status_code=code, sentence=sentence)


async def _failed(request: Request, error: Exception) -> Response:
    """Page of a fault of the program; its traceback is in the terminal, and no part of it is on the page."""
    sentence = "This page could not be made. The terminal in which the dashboard runs shows why."
    return page(request, "error.html", status_code=500, sentence=sentence)
