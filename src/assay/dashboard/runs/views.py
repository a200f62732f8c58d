"""The view *Runs*: the table of runs, the page of one run, and several runs over each other.

A request chooses which runs the table has, in which order, and one page of them. All of it happens in memory on the
entries of `watching`, so ten thousand runs are filtered within milliseconds. A page of one run has its summary and
proofs, its configuration, and its differences to another run. Losses and step times of several runs have common axes.
"""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from assay.config.home import Home
from assay.dashboard.pages import page
from assay.dashboard.runs.live import VALUES, curves
from assay.dashboard.server_state import Results, ServerState, has_ended, state_of, why_not
from assay.dashboard.stream import follow
from assay.errors import UsageError, legible, short_text
from assay.records.run import RunResult
from assay.report.comparison.wording import unit_of_loss, value_check
from assay.report.kit.blocks import Block, Table
from assay.report.run import RunView, flat, proof
from assay.report.runs import (
    COLUMNS,
    FIGURES,
    SPARE,
    UNLIKE,
    changed_rows,
    configurations,
    environments,
    figures,
    row,
    unlike,
)
from assay.store.cells import fold_cells, studies_by_run
from assay.store.index import Entry
from assay.store.lookup import find
from assay.store.run_folder import RunFolder

PER_PAGE = 100
TITLES = tuple(name for name in COLUMNS if name != "created")
"""Columns of the table; an id begins with the time of its creation."""
_LONGEST = 200
"""Characters of a text in the table, and of one that is searched."""
SORTS: Mapping[str, str] = {
    "run": "run",
    "status": "status",
    "preset": "preset",
    "corpus": "corpus",
    "model": "n_embd",
    "with": "optimizations",
    "steps": "steps",
    "val loss": "val_loss",
    "tokens/s": "tokens_per_second",
    "tensors peak": "tensors_peak_bytes",
    "process peak": "process_peak_bytes",
}
"""Field of an entry by which each column is sorted."""
_MOST_OVERLAID = 8
"""Runs that are drawn; there are as many colours."""
_FEWEST_OVERLAID = 2


class Query(NamedTuple):
    """Question to the table; every field is a text of its address."""

    q: str = ""
    """Words that must all occur in a run's texts, in any case."""
    status: str = ""
    study: str = ""
    """Id of a study."""
    optimization: str = ""
    """Name of a technique of the stack, or `none`."""
    sort: str = "run"
    """Title of a column; ids sort by the time of creation."""
    order: str = "down"
    page: str = "1"
    cells: str = ""
    """Not empty: cells of studies are listed one by one."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "Query":
        """Return the query of an address; an unknown column sorts by the run."""
        found = cls(**{name: given[name][:_LONGEST] for name in cls._fields if name in given})
        return found if found.sort in SORTS else found._replace(sort="run")

    def address(self, **changes: str) -> str:
        """Return the address of this query with changes, without what is usual."""
        values = {**self._asdict(), **changes}
        usual = Query()._asdict()
        kept = {name: value for name, value in values.items() if value != usual[name]}
        return f"/runs?{urlencode(kept)}" if kept else "/runs"


class ChosenRuns(NamedTuple):
    """One page of the runs that a query chooses."""

    entries: Sequence[Entry]
    matching: int
    """Number of runs that the query chooses, on all pages."""
    page: int
    pages: int


class Choices(NamedTuple):
    """Entries of the menus."""

    statuses: Sequence[str]
    optimizations: Sequence[str]


def choose(
    entries: Iterable[Entry],
    query: Query,
    of_study: frozenset[str] | None = None,
    studies: Mapping[str, str] = MappingProxyType({}),
) -> ChosenRuns:
    """Return the chosen runs; `of_study` has the ids of a study's runs, or is None for all runs.

    `studies` has the study of each cell. Cells are one line, unless the query asks for them or for their study.
    """
    words = query.q.casefold().split()
    found = [
        one
        for one in entries
        if (not query.status or one.status == query.status)
        and (of_study is None or one.run in of_study)
        and (not query.optimization or query.optimization in names(one.optimizations))
        and _has(one, words)
    ]
    if of_study is None and not query.cells:
        found = fold_cells(found, studies)
    _sort(found, SORTS[query.sort], down=query.order == "down")
    pages = max(1, -(-len(found) // PER_PAGE))
    page = min(max(int(query.page), 1), pages) if query.page.isdecimal() else 1
    return ChosenRuns(found[(page - 1) * PER_PAGE : page * PER_PAGE], len(found), page, pages)


def choices(entries: Iterable[Entry]) -> Choices:
    """Return the statuses and techniques that occur."""
    statuses, stacks = set(), set()
    for one in entries:
        statuses.add(one.status)
        stacks.add(one.optimizations)
    return Choices(sorted(statuses), sorted({name for stack in stacks for name in names(stack)}))


def _sort(entries: list[Entry], field: str, *, down: bool) -> None:
    """Sort in place; runs without the figure are last in both orders."""
    entries.sort(key=lambda one: one.run, reverse=True)
    known = [one for one in entries if getattr(one, field) is not None]
    unknown = [one for one in entries if getattr(one, field) is None]
    known.sort(key=lambda one: getattr(one, field), reverse=down)
    entries[:] = known + unknown


@lru_cache(maxsize=4096)
def names(optimizations: str) -> frozenset[str]:
    """Return the names of a stack, without their parameters; `none` for the baseline."""
    stack: list[str] = json.loads(optimizations)
    return frozenset(one.partition(":")[0][:_LONGEST] for one in stack) or frozenset({"none"})


def _has(entry: Entry, words: list[str]) -> bool:
    """True if a run's texts have all words."""
    if not words:
        return True
    texts = (entry.run, entry.status, entry.preset, entry.corpus, entry.optimizations, entry.reason)
    searched = " ".join(text[:_LONGEST] for text in texts if text).casefold()
    return all(word in searched for word in words)


def run_lines(entries: Sequence[Entry], studies: Container[str] = ()) -> list[dict[str, Any]]:
    """Return runs as lines of the table: their texts by column, each cut. `studies` has ids of lines for studies."""
    marks = unlike(entries)
    return [
        {
            "run": one.run,
            "folded": one.run in studies,
            "address": f"/{'studies' if one.run in studies else 'runs'}/{quote(one.run, safe='')}",
            "cells": [
                legible(text, _LONGEST)
                for name, text in zip(COLUMNS, row(one, marks.get(one.run, "")), strict=True)
                if name in TITLES[1:]
            ],
        }
        for one in entries
    ]


def columns(query: Query) -> list[dict[str, Any]]:
    """Return the headings, each with the address that sorts by it; a second use turns the order round."""
    return [
        {
            "title": name,
            "right": name in FIGURES,
            "spare": name in SPARE,
            "sorted": {"down": "descending", "up": "ascending"}.get(query.order) if name == query.sort else None,
            "address": query.address(
                sort=name, order="up" if name == query.sort and query.order == "down" else "down", page="1"
            ),
        }
        for name in TITLES
    ]


def content(result: RunResult, home: Home) -> dict[str, Any]:
    """Return what the page of a run shows, without its curves."""
    return {
        "run": result.run,
        "status": result.status.value.replace("_", " "),
        "live": result.status.value == "running",
        "summary": list(RunView(result, home).blocks()),
        "proofs": _proofs(result),
        "sample": result.loss.sample,
        "configuration": Table.of(("key", "value"), flat(result.config.model_dump(mode="json")).items()),
        "environment": None
        if result.provenance.environment is None
        else Table.of(("fact", "value"), flat(result.provenance.environment.model_dump(mode="json")).items()),
        "counted": result.config.counted,
        "unit_of_loss": unit_of_loss(result.config),
        "predicted_step_seconds": None if result.predicted is None else result.predicted.step_seconds,
    }


def against(result: RunResult, other: str, home: Home, results: Results) -> tuple[list[Block], str]:
    """Return the differences of a run to another one, and a sentence if there is no such run."""
    try:
        theirs = results.of(find(home, other))
    except UsageError as error:
        return [], str(error)
    return list(differences(result, theirs)), ""


def differences(ours: RunResult, theirs: RunResult) -> Iterable[Block]:
    """Yield tables of what differs between two runs."""
    here, there = f"this run ({ours.run})", f"the other ({theirs.run})"
    for title, pairs in (("setting", configurations(ours, theirs)), ("environment", environments(ours, theirs))):
        if pairs:
            yield Table.of((title, here, there), [(key, *pair) for key, pair in pairs.items()])
        else:
            yield f"No {title} differs."
    yield Table.of(("figure", here, there, "change"), changed_rows(figures(ours, theirs)), (here, there, "change"))


def _proofs(result: RunResult) -> dict[str, str]:
    """Return the sentence on each thing that was proven, the latest if there are several, as `live` sends them."""
    found = {one.optimization: proof(one) for one in result.proof.evidence}
    return found if result.proof.values is None else {**found, VALUES: f"values: {value_check(result.proof.values)}"}


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
    if not _FEWEST_OVERLAID <= len(distinct) <= _MOST_OVERLAID:
        raise UsageError(f"tick {_FEWEST_OVERLAID} to {_MOST_OVERLAID} runs in the list of runs, not {len(distinct)}")
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


def every_run(request: Request) -> Response:
    """Page of the table; with `part=table`, the table alone."""
    state, query = state_of(request), Query.of(request.query_params)
    entries = state.watch.entries()
    studies = studies_by_run(request.app.state.home)
    chosen = choose(entries, query, state.studies.runs(query.study) if query.study else None, studies)
    shown: dict[str, Any] = {
        "query": query,
        "columns": columns(query),
        "rows": run_lines(chosen.entries, frozenset(studies.values())),
        "unlike": UNLIKE if unlike(chosen.entries) else "",
        "folds": bool(studies) and not query.study,
        "chosen": chosen,
        "total": len(entries),
    }
    if request.query_params.get("part") == "table":
        return page(request, "runs_table.html", **shown)
    return page(request, "runs.html", **shown, choices=choices(entries), studies=state.studies.known())


def one_run(request: Request) -> Response:
    """Page of one run, and with `against` its differences to another."""
    home: Home = request.app.state.home
    results = state_of(request).results
    folder = find(home, request.path_params["run"])
    result = results.of(folder)
    other = request.query_params.get("against", "")
    blocks, refusal = against(result, other, home, results) if other else ([], "")
    shown = content(result, home)
    unread = why_not(folder) if shown["live"] else ""
    return page(request, "run.html", **shown, unread=unread, against=other, differences=blocks, refusal=refusal)


def run_events(request: Request) -> Response:
    """Events of one run from an offset, as a stream."""
    folder = find(request.app.state.home, request.path_params["run"])
    state = state_of(request)
    tail = state.course(folder)
    if why_not(folder):
        return follow(request, tail, lambda: has_ended(folder))
    return follow(request, tail, lambda: has_ended(folder), lambda: state.present.of(folder))


routes = [
    Route("/runs/overlaid", overlaid),
    Route("/runs", every_run),
    Route("/runs/{run}", one_run),
    Route("/runs/{run}/events", run_events),
]
