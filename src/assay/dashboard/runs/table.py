"""The table of runs: which runs a request chooses, in which order, and one page of them.

All of it happens in memory on the entries of `watching`, so ten thousand runs are filtered within milliseconds.
"""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from assay.errors import legible
from assay.report.runs import COLUMNS, FIGURES, SPARE, row, unlike
from assay.store.index import Entry
from assay.store.lookup import fold_cells

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
