"""Routes of the view *Runs*."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from assay.config.home import Home
from assay.dashboard.pages import page
from assay.dashboard.runs import one, table
from assay.dashboard.runs.present import why_not
from assay.dashboard.runs.results import has_ended
from assay.dashboard.server_state import state_of
from assay.dashboard.stream import follow
from assay.report.runs import UNLIKE, unlike
from assay.store.lookup import find, studies_by_run


def every_run(request: Request) -> Response:
    """Page of the table; with `part=table`, the table alone."""
    state, query = state_of(request), table.Query.of(request.query_params)
    entries = state.watch.entries()
    studies = studies_by_run(request.app.state.home)
    chosen = table.choose(entries, query, state.studies.runs(query.study) if query.study else None, studies)
    content: dict[str, Any] = {
        "query": query,
        "columns": table.columns(query),
        "rows": table.run_lines(chosen.entries, frozenset(studies.values())),
        "unlike": UNLIKE if unlike(chosen.entries) else "",
        "folds": bool(studies) and not query.study,
        "chosen": chosen,
        "total": len(entries),
    }
    if request.query_params.get("part") == "table":
        return page(request, "runs_table.html", **content)
    return page(request, "runs.html", **content, choices=table.choices(entries), studies=state.studies.known())


def one_run(request: Request) -> Response:
    """Page of one run, and with `against` its differences to another."""
    home: Home = request.app.state.home
    results = state_of(request).results
    folder = find(home, request.path_params["run"])
    result = results.of(folder)
    other = request.query_params.get("against", "")
    blocks, refusal = one.against(result, other, home, results) if other else ([], "")
    content = one.content(result, home)
    unread = why_not(folder) if content["live"] else ""
    return page(request, "run.html", **content, unread=unread, against=other, differences=blocks, refusal=refusal)


def run_events(request: Request) -> Response:
    """Events of one run from an offset, as a stream."""
    folder = find(request.app.state.home, request.path_params["run"])
    state = state_of(request)
    tail = state.course(folder)
    if why_not(folder):
        return follow(request, tail, lambda: has_ended(folder))
    return follow(request, tail, lambda: has_ended(folder), lambda: state.present.of(folder))


routes = [
    Route("/runs", every_run),
    Route("/runs/{run}", one_run),
    Route("/runs/{run}/events", run_events),
]
