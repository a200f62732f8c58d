"""Memory of the server between requests: entries and results of runs, studies, digested logs. Files stay the truth."""

from threading import Event
from typing import cast

from starlette.requests import Request

from assay.config.home import Home
from assay.dashboard.runs.live import RunCourse
from assay.dashboard.runs.present import Present
from assay.dashboard.runs.results import Results
from assay.dashboard.runs.watching import Watch
from assay.dashboard.studies.answer import Answers
from assay.dashboard.studies.study_lines import Studies
from assay.dashboard.tail import Tail, Tails
from assay.store.run_folder import RunFolder


class ServerState:
    """Memory of one server."""

    def __init__(self, home: Home) -> None:
        self.watch = Watch(home)
        self.results = Results()
        self.tails = Tails()
        self.present = Present()
        self.studies = Studies(home)
        self.answers = Answers(home)
        self.ending = Event()
        """Set once the server ends, so that streams end before it."""

    def course(self, folder: RunFolder) -> Tail:
        """Return the tail of a run's log."""
        return self.tails.of(folder.events_file, lambda: RunCourse(folder.spec()))


def state_of(request: Request) -> ServerState:
    """Return the memory of the server that answers a request."""
    return cast(ServerState, request.app.state.memory)
