"""The state of a study as text: how many cells have ended and how, its process, and what failed."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from assay.report.blocks import Block, Facts, Table

if TYPE_CHECKING:
    from assay.studies.execution.study_listing import StudyStanding


def standing_report(standing: "StudyStanding") -> Iterator[Block]:
    """Yield the state, and a table of cells that did not end as they should."""
    study = standing.study
    facts = {
        "study": study.id,
        "name": study.name,
        "question": study.question,
        "kind": study.kind,
        "base": study.title,
        "status": study.status,
        "process": standing.process,
        "cells": f"{study.ended} of {study.cells} have ended",
        "of them": ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in standing.by_status.items()),
    }
    yield Facts.of((label, text) for label, text in facts.items() if text)
    if standing.problems:
        yield Table.of(("cell", "run", "problem"), standing.problems)
    if study.status not in ("complete", "running"):
        yield f"`assay study resume {study.id}` runs the cells that have no result."
