"""Recommendations of the dashboard: one search at a time, in a thread, and all that was found is kept.

A known answer is returned at once. Else the latest one of the same preset and device is, and the page requests it again
while the search goes on. If there is none, stacks that add no loss are searched first, in a third to half of the time,
and their answer is preliminary. A search uses rates that are known: it times nothing and starts no process. A question
that waits is replaced by a newer one, because its reader has moved on.
"""

import gc
import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Literal

from assay.api import recommend
from assay.api.recommending import MAX_LOSS_CHANGE
from assay.config.home import Home
from assay.dashboard.whatif.places import known_since, this_machine
from assay.dashboard.whatif.question import HERE, WhatIfQuestion, search_command
from assay.errors import UsageError
from assay.instruments.memory.resident_memory import trim
from assay.report.kit.blocks import Block

_KEPT = 64
_FAILED = "The search failed. The terminal in which the dashboard runs shows why."
State = Literal["found", "searching", "refused"]


@dataclass(frozen=True)
class Recommended:
    """A question's recommendation as far as it is known."""

    state: State
    blocks: tuple[Block, ...] = ()
    stack: str = ""
    """Recommended optimizations as after ``--with``; empty for none."""
    of: WhatIfQuestion | None = None
    """The question that the content answers; another one while the search goes on."""
    refusal: str = ""
    command: str = ""
    """The command that searches the same."""
    preliminary: bool = False
    """True for the answer of the first search, whose techniques add no loss."""


_Key = tuple[WhatIfQuestion, tuple[int, ...]]
"""A question without a stack, and the state of the rates that its answer rests on."""


class Recommender:
    """Searches for one home, one at a time."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._lock = threading.Lock()
        self._found: OrderedDict[_Key, Recommended] = OrderedDict()
        self._early: Recommended | None = None
        """Preliminary answer to the question in work."""
        self._waiting: _Key | None = None
        self._working: _Key | None = None

    def ask(self, question: WhatIfQuestion) -> Recommended:
        """Return the recommendation of a question if it is known; else begin its search, and return the nearest one.

        A question that cannot be searched is answered by its sentence at once, whatever else is being searched.
        """
        if refusal := _refusal(question):
            return Recommended("refused", of=question, refusal=refusal)
        key = (replace(question, stack="", micro=1), known_since(self._home) if question.device == HERE else ())
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
            if self._working is None:
                self._working = key
                threading.Thread(target=self._search, daemon=True).start()
            elif self._working != key:
                self._waiting = key
            near = self._early if self._early is not None and self._working == key else self._nearest(question)
        return Recommended("searching") if near is None else replace(near, state="searching")

    def _nearest(self, question: WhatIfQuestion) -> Recommended | None:
        """Return the latest recommendation for the same preset and device."""
        for (other, _), one in reversed(self._found.items()):
            if one.state == "found" and (other.preset, other.device) == (question.preset, question.device):
                return one
        return None

    def _search(self) -> None:
        """Answer the question in work, then the one that waits, until none does."""
        while (key := self._working) is not None:
            try:
                with self._lock:
                    first = self._nearest(key[0]) is None
                if first and (early := search_recommendation(key[0], self._home, most_loss=0.0)).state == "found":
                    with self._lock:
                        self._early = replace(early, preliminary=True, command="")
                found = search_recommendation(key[0], self._home)
            except Exception:  # a fault of one search must not end all later ones
                logging.getLogger(__name__).exception("the search for a recommendation failed")
                found = Recommended("refused", of=key[0], refusal=_FAILED)
            _give_back()
            with self._lock:
                self._found[key] = found
                while len(self._found) > _KEPT:
                    self._found.popitem(last=False)
                self._working, self._waiting, self._early = self._waiting, None, None


def _give_back() -> None:
    """Return the memory of a search. Its ledgers have cycles, of which the dashboard looks for old ones rarely."""
    gc.collect()
    trim()


def _refusal(question: WhatIfQuestion) -> str:
    """Return why no stacks are searched for a question, as far as its configuration tells; empty if they are."""
    if question.gpus > 1:
        return "stacks are searched for one device; choose one GPU"
    try:
        replace(question, stack="", micro=1).run()
    except UsageError as reason:
        return str(reason)
    return ""


def search_recommendation(question: WhatIfQuestion, home: Home, most_loss: float = MAX_LOSS_CHANGE) -> Recommended:
    """Return the recommendation of a question, searched now. It takes seconds.

    Lossy techniques are searched if measurements say that they add at most the fraction `most_loss`.
    """
    try:
        here = this_machine(home) if question.device == HERE else None
        found = recommend(
            *(question.preset, *question.overrides),
            memory_bytes=None if here is None else here.memory_bytes,
            of=None if here is None else "process",
            device=None if here is not None else question.device,
            machine=here,
            max_loss_change=most_loss,
            calibrate=0.0,
            home=home,
        )
    except UsageError as reason:
        return Recommended("refused", of=question, refusal=str(reason))
    return Recommended(
        *(
            "found",
            tuple(found.report()),
            found.recommended.title if found.recommended.title != "nothing" else "",
            question,
        ),
        command=search_command(question, found.budget_bytes),
    )
