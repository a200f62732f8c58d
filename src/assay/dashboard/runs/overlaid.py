"""Several runs over each other: losses and step times on common axes, chosen in the table of runs."""

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from assay.dashboard.pages import page
from assay.dashboard.runs.live import curves
from assay.dashboard.runs.table import TITLES, run_lines
from assay.dashboard.server_state import ServerState, state_of
from assay.errors import UsageError, short_text
from assay.report.runs import UNLIKE, unlike
from assay.store.index import Entry
from assay.store.run_folder import RunFolder

MOST = 8
"""Runs that are drawn; there are as many colours."""
_FEWEST = 2


def overlaid(request: Request) -> Response:
    """The page; with `part=points`, the points of its curves for a script."""
    state = state_of(request)
    try:
        chosen, refusal = _chosen(state, request.query_params.getlist("run")), ""
    except UsageError as reason:
        chosen, refusal = [], str(reason)
    points = {"runs": [_curves(state, one) for one in chosen], "live": any(one.status == "running" for one in chosen)}
    if request.query_params.get("part") == "points":
        return JSONResponse(points)
    content: dict[str, Any] = {"columns": TITLES, "rows": run_lines(chosen), "unlike": UNLIKE if unlike(chosen) else ""}
    return page(request, "overlaid.html", **content, points=points, refusal=refusal)


def _chosen(state: ServerState, names: Sequence[str]) -> list[Entry]:
    """Return the runs with these ids. Raises `UsageError` for an unknown one, for too few and for too many."""
    known = {one.run: one for one in state.watch.entries()}
    distinct = list(dict.fromkeys(names))
    if missing := next((one for one in distinct if one not in known), None):
        raise UsageError(f"there is no run {short_text(missing)} in this home")
    if not _FEWEST <= len(distinct) <= MOST:
        raise UsageError(f"tick {_FEWEST} to {MOST} runs in the list of runs, not {len(distinct)}")
    return [known[one] for one in distinct]


def _curves(state: ServerState, entry: Entry) -> dict[str, Any]:
    folder = RunFolder(state.watch.home.runs / entry.run)
    (line,) = run_lines([entry])
    stack = line["cells"][TITLES.index("with") - 1]
    named = (entry.preset, "" if stack == "none" else stack)
    try:
        drawn = curves(state.course(folder).since(0)[0])
    except UsageError:  # its configuration cannot be read
        drawn = curves([])
    return {"run": line["run"], "title": " ".join(filter(None, named)), **drawn}


routes = [Route("/runs/overlaid", overlaid)]
