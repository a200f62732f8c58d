"""The web application: the routes of all views behind one guard, which checks each request, with the files of pages.

- Only GET and HEAD are answered, so no page of another site can change anything here.
- Without a token the Host header must name this machine. A page of another site whose name is made to resolve to
  127.0.0.1 (DNS rebinding) sends its own name, and is refused.
- With a token a request needs it once, as `?token=`. The answer sets it as a cookie that scripts cannot read, and
  redirects to the address without it, so that it is in no history and in no Referer.
- The policy of contents lets a page run only this server's own scripts, and lets no other site frame it.

A view finds the home as `request.app.state.home`. An error that the user can correct becomes a page with its sentence.
"""

import importlib.util
from collections.abc import Sequence
from http.cookies import SimpleCookie
from pathlib import Path
from secrets import compare_digest
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from assay.config.home import Home
from assay.dashboard import scaling, study_views, whatif
from assay.dashboard.pages import page, render_page
from assay.dashboard.runs import overview
from assay.dashboard.runs import views as runs
from assay.dashboard.server_state import ServerState
from assay.dashboard.whatif.own_models import OwnModels, check_models
from assay.errors import StorageError, UsageError
from assay.report.kit.drawing import DARK, LIGHT, variables

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

COOKIE = "assay_token"
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Names of this machine in a Host header."""

_STYLES = (
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='",
    "'sha256-ji27qzEtxXZW+7dun6UwjHXJ18e6WAin1VvNtkzIE/o='",
)
"""Digests of the only style elements that are allowed: an empty one, to which Plotly adds its rules, and Plotly 7.1's
style of maps. The latter keeps the console clean; no figure here needs it."""

POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' {' '.join(_STYLES)}; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; frame-src 'self'; frame-ancestors 'self'; base-uri 'none'; form-action 'self'"
)
"""Content-Security-Policy of pages; an answer that has a stricter one keeps it."""

_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Middleware that answers refused requests itself, and passes on all others."""

    def __init__(self, app: ASGIApp, token: str | None = None) -> None:
        self.app = app
        self.token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # no view has a web socket
            return
        answer = self._refusal(scope) or self.app
        await answer(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that may not pass; None if it may."""
        if scope["method"] not in ("GET", "HEAD"):
            return PlainTextResponse("The dashboard only reads.\n", 405, {"allow": "GET, HEAD"})
        headers = Headers(scope=scope)
        if self.token is None:
            if _hostname(headers.get("host", "")) in LOOPBACK:
                return None
            return PlainTextResponse("Open the dashboard as http://127.0.0.1 with its port.\n", 421)
        return self._without_token(scope, headers, self.token)

    def _without_token(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        shown = [value for name, value in given if name == "token"]
        if shown and _same(shown[0], token):
            rest = urlencode([pair for pair in given if pair[0] != "token"])
            # A path of two slashes would be the name of another host.
            path = "/" + scope["path"].lstrip("/\\")
            answer = RedirectResponse(path + (f"?{rest}" if rest else ""), 303)
            answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", path="/")
            return answer
        if _same(_cookie(headers.get("cookie", "")), token):
            return None
        return PlainTextResponse("Open the link that `assay dashboard` printed: it has the token.\n", 403)


def _same(given: str, token: str) -> bool:
    """Compare in a time that does not depend on where two texts differ."""
    return compare_digest(given.encode(), token.encode())


def _cookie(header: str) -> str:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except Exception:  # a cookie that cannot be read is none
        return ""
    return "" if found is None else found.value


def _hostname(host: str) -> str:
    """Host header without its port, in small letters."""
    name, _, port = host.lower().rpartition(":")
    return name if name and port.isdigit() else host.lower()


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return sending


_STATIC = Path(__file__).parent / "static"
_PLOTLY = "package_data/plotly.min.js"
"""Path of the browser's library within the installed package `plotly`."""


def build_app(home: Path, token: str | None = None, models: Sequence[str] = ()) -> Starlette:
    """Return the application for a home; with a `token`, only requests that know it are answered.

    `models` are the functions of the user's own that requests may choose from.
    """
    routes: list[BaseRoute] = [
        Route("/static/plotly.min.js", _plotly),
        Route("/static/palette.css", _palette),
        Mount("/static", StaticFiles(directory=_STATIC)),
        *(route for view in (overview, runs, study_views, whatif, scaling) for route in view.routes),
    ]
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, token=token)],
        exception_handlers={UsageError: _refused, StorageError: _refused, HTTPException: _refused, Exception: _failed},
    )
    app.state.home = Home(home)
    app.state.memory = ServerState(app.state.home)
    app.state.models, app.state.own_models = check_models(models), OwnModels()
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
