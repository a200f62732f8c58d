"""The process that copies runs to one tracker: ``python -m assay.tracking.sender NAME FOLDER HOME``.

A tracker's library starts threads and processes, handles signals, prints, and may fail or hang. Here it can do so
without harm: the parent of a run only writes a line, and the measured process knows nothing of it. This process reads
the home as any other reader, and yields to all others of the machine.

Requests are lines of JSON on standard input: `follow` a run while it trains, `send` one that has ended, or `finish` the
one that is followed. Each answer is one line of JSON: `ready` at first, then `sent` or `failed`. After a failure the
process ends.
"""

import argparse
import json
import os
import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from assay.config.home import Home
from assay.errors import first_line
from assay.store.event_log import read_since
from assay.store.lookup import find
from assay.store.result import settle
from assay.tracking import tracker
from assay.tracking.base import Tracker
from assay.tracking.content import Series, ending, sheet

POLL_SECONDS = 1.0
"""Time between two looks at the log of a run that is followed."""
_YIELDING = 10
"""Priority of the process, as for `nice`."""


class Copy:
    """Copy of one run, which grows with the run's log."""

    def __init__(self, to: Tracker, home: Home, run: str, title: str = "", group: str = "") -> None:
        self._to = to
        self._folder = find(home, run)
        self._sheet = sheet(self._folder.spec(), title, group)
        self._series = Series(self._sheet.created)
        self._offset = 0
        to.begin(self._sheet)

    def grow(self) -> None:
        """Add what the log has since the last time. If a resumed process takes steps back, write the copy anew."""
        events, self._offset = read_since(self._folder.events_file, self._offset)
        rows, back = self._series.add(events)
        if back:
            self._to.begin(self._sheet)
        if rows:
            self._to.log(rows)

    def end(self) -> None:
        """Add the rest, and the summary of the run as it is now."""
        self.grow()
        self._to.end(ending(settle(self._folder, recorded=False), self._series.time))


def serve(to: Tracker, home: Home, requests: "queue.SimpleQueue[dict[str, Any] | None]") -> Iterator[dict[str, Any]]:
    """Do what is requested, and yield the answers, until None is requested: nobody needs the process any more."""
    copy: Copy | None = None
    to.load()
    yield {"ready": to.name}
    while True:
        try:
            asked = requests.get(timeout=None if copy is None else POLL_SECONDS)
        except queue.Empty:
            if copy is not None:
                copy.grow()
            continue
        if copy is not None and (asked is None or asked["do"] != "send"):
            copy.end()
            copy = None
        if asked is None:
            return
        facts = {name: asked.get(name, "") for name in ("run", "title", "group")}
        if asked["do"] == "follow":
            copy = Copy(to, home, **facts)
            continue
        if asked["do"] == "send":
            Copy(to, home, **facts).end()
        yield {"sent": facts["run"]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer requests until standard input closes; returns the exit code."""
    parser = argparse.ArgumentParser(prog="assay.tracking.sender")
    parser.add_argument("name")
    parser.add_argument("folder", type=Path)
    parser.add_argument("home", type=Path)
    options = parser.parse_args(arguments)
    answers = _apart()
    if hasattr(os, "nice"):
        os.nice(_YIELDING)
    requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    try:
        for answer in serve(tracker(options.name, options.folder), Home(options.home), requests):
            _say(answers, answer)
    except Exception as error:
        _say(answers, {"failed": f"{type(error).__name__}: {first_line(error)}"})
        return 1
    return 0


def _apart() -> IO[str]:
    """Return standard output for the answers alone; what a library prints goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def _listen(requests: "queue.SimpleQueue[dict[str, Any] | None]") -> None:
    for line in sys.stdin:
        requests.put(json.loads(line))
    requests.put(None)


def _say(answers: IO[str], answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    sys.exit(main())
