"""The first page: what happened last, what runs now with its time left, and what to ask next.

Each line is known from what the other views keep: entries, logs and answers. Nothing is analysed for this page that the
page of a study would not show.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from assay.config.loading import presets
from assay.dashboard.pages import page
from assay.dashboard.server_state import ServerState, state_of
from assay.dashboard.study_answer import command_of
from assay.dashboard.study_progress import StudyLine, progress_of
from assay.errors import UsageError
from assay.report.run_answer import closing, headline
from assay.store.cells import studies_by_run
from assay.store.index import Entry
from assay.store.run_folder import RunFolder
from assay.studies.folder import StudyFolder

_MOST_RUNNING = 12
_MOST_NEXT = 3
_BEGUN = len("20261127-231747")
"""Characters of an id that are the time of its beginning."""
_FIRST = (
    (
        "assay compare demo --with sdpa_attention --with bf16_mixed",
        "measures what two optimizations change, in minutes",
    ),
    ("assay train demo", "trains and measures one small model"),
)
"""Commands for a home in which nothing has run."""
_ELSEWHERE = "h100"
"""Device of the link to *What if*."""

Command = tuple[str, str]
"""A command, and what it does."""


class Happened(NamedTuple):
    """A study or a run that has ended."""

    what: str
    title: str
    id: str
    address: str
    status: str
    sentence: str
    """Its answer or result in one line."""
    next: Sequence[Command]
    """Commands that follow from it."""
    base: str
    """Its preset or file."""


class Running(NamedTuple):
    """A study or a run that has not ended."""

    what: str
    title: str
    address: str
    progress: str
    """Cells or steps that are done, and the time left."""
    done: int
    total: int


def overview(request: Request) -> Response:
    """The page; with `part=now`, what changes on it."""
    state, home = state_of(request), request.app.state.home
    studies = state.studies.known()
    cells = studies_by_run(home)
    runs = [one for one in state.watch.entries() if one.run not in cells]
    last = last_of(state, studies, runs)
    content: dict[str, Any] = {
        "last": last,
        "running": list(_running(state, studies, runs))[:_MOST_RUNNING],
        "commands": _FIRST if last is None else last.next[:_MOST_NEXT],
        "what_if": None if last is None or last.base not in presets() else _what_if(last.base),
        "empty": not studies and not runs,
        "home": str(home.root.absolute()),
        "counts": (len(studies), len(runs)),
    }
    return page(request, "now.html" if request.query_params.get("part") == "now" else "home.html", **content)


def last_of(state: ServerState, studies: Sequence[StudyLine], runs: Sequence[Entry]) -> Happened | None:
    """Return the study or the run that began last, of those that have ended; None if none has."""
    study = next((one for one in studies if one.status != "running"), None)
    run = next((one for one in runs if one.status != "running"), None)
    if study is not None and (run is None or study.id[:_BEGUN] >= run.run[:_BEGUN]):
        return _study(state, study)
    return None if run is None else _run(state, run)


def _study(state: ServerState, line: StudyLine) -> Happened:
    folder = StudyFolder(state.watch.home.reports / line.id)
    sentence, hints = f"{line.ended} of {line.cells} runs have ended.", tuple[Command, ...]()
    try:
        answer = state.answers.of(folder)
    except UsageError as error:
        answer, sentence = None, str(error)
    if answer is not None:
        sentence, hints = answer.sentence or sentence, answer.next
    elif line.status == "stopped":
        hints = ((f"assay study resume {line.id}", "does the runs that have no result"),)
    named = ("study", line.title or line.id, line.id, _address("studies", line.id))
    return Happened(*named, line.status, sentence, hints, line.base)


def _run(state: ServerState, entry: Entry) -> Happened:
    folder = RunFolder(state.watch.home.runs / entry.run)
    sentence, hints = entry.reason or "", list[Command]()
    if entry.status != "damaged":
        result = state.results.of(folder)
        sentence = sentence or headline(result)
        lines = closing(result, saved=folder.newest_checkpoint() is not None)
        hints = [command_of(text) for label, text in lines if label == "next"]
    named = ("run", entry.preset or entry.run, entry.run, _address("runs", entry.run))
    return Happened(*named, entry.status.replace("_", " "), sentence, hints, entry.preset or "")


def _running(state: ServerState, studies: Sequence[StudyLine], runs: Sequence[Entry]) -> Iterator[Running]:
    """Yield what has not ended, studies first."""
    for line in studies:
        if line.status == "running":
            told = progress_of(state.studies.tail(StudyFolder(state.watch.home.reports / line.id)).since(0)[0])
            progress = told or f"{line.ended} of {line.cells} runs"
            title, address = line.title or line.id, _address("studies", line.id)
            yield Running("study", title, address, progress, line.ended, line.cells)
    for entry in runs:
        if entry.status == "running":
            batches = state.course(RunFolder(state.watch.home.runs / entry.run)).since(0)[0]
            now: dict[str, Any] = (
                batches[-1] if batches else {"phase": "preparing", "done": 0, "total": 0, "left": None}
            )
            left = f", about {now['left']} left" if now["left"] else ""
            progress = f"{now['phase']}, step {now['done']} of {now['total']}{left}"
            title, address = entry.preset or entry.run, _address("runs", entry.run)
            yield Running("run", title, address, progress, now["done"], now["total"])


def _address(view: str, name: str) -> str:
    return f"/{view}/{quote(name, safe='')}"


def _what_if(preset: str) -> tuple[str, str]:
    """Return the address and the words of the link to *What if*."""
    query = urlencode({"preset": preset, "device": _ELSEWHERE})
    return f"/what-if?{query}", f"What would {preset} take on an H100?"


routes = [Route("/", overview)]
