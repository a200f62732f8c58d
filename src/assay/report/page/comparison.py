"""Content of a comparison's page: table, sections, figures, proofs, and how each number was made."""

from typing import Any

from assay.analysis.metrics import Metric
from assay.analysis.row import Row
from assay.records.study import ComparisonRecord
from assay.report.footnotes import footnotes, size
from assay.report.page import inline
from assay.report.page.compared import FIGURES, TITLES
from assay.report.page.compared.memory import categories
from assay.report.page.panels import MOST
from assay.report.page.ran import built_table, configuration, machine, predicted_table, runs_table
from assay.report.page.theme import DARK, LIGHT, variable, variables
from assay.report.study.section import Filled
from assay.report.study.view import StudyView
from assay.report.wording import by_rank, columns, first_step, not_proven, status, texts, value_check

_FRONT = "pareto_front"
"""Name of the section with memory against time."""
_BY_ROW = ("seconds", "losses", "distances")
"""Figures with a panel for each row but the baseline."""


def content(study: StudyView) -> dict[str, Any]:
    """Return what the template `page.html` shows."""
    comparison, record = study.comparison, study.comparison.record
    rows = (comparison.baseline, comparison.again, *comparison.rows)
    sections = [_section(one, study) for one in study.sections]
    return {
        "record": record,
        "heading": _heading(record),
        "size": size(comparison),
        "columns": columns(comparison.run),
        "rows": [_row(row, max(0, number - 1), columns(comparison.run)) for number, row in enumerate(rows)],
        **_placed(sections),
        "footnotes": footnotes(comparison),
        "flagged": [(row.treatment, flag) for row in rows for flag in row.flags],
        "figures": {name: inline(TITLES[name], panels(comparison)) for name, panels in FIGURES.items()},
        "beyond": _beyond(record),
        "titles": TITLES,
        "layers": [(name, variable(number)) for number, name in enumerate(categories(comparison), start=1)],
        "predicted": predicted_table(comparison),
        "built": built_table(comparison),
        "machine": machine(comparison),
        "configuration": configuration(comparison),
        "cells": runs_table(comparison),
        "light": variables(LIGHT),
        "dark": variables(DARK),
    }


def _beyond(record: ComparisonRecord) -> dict[str, str]:
    """Return the sentence on rows beyond the last panel, by figure; empty where every row has one."""
    rows = {"memory": 1 + len(record.treatments), **dict.fromkeys(_BY_ROW, len(record.treatments))}
    sentence = f" Only the first {MOST} rows have a panel; the files beside the page have all."
    return {name: sentence if count > MOST else "" for name, count in rows.items()}


def _heading(record: ComparisonRecord) -> str:
    """Return the title of the page: a study by its name, a comparison by its base."""
    count = len(record.treatments)
    rows = "row" if record.name else "treatment"
    return f"{record.name or record.title}: {count} {rows}{'s' if count > 1 else ''} against the baseline"


def _row(row: Row, number: int, shown: list[Metric]) -> dict[str, Any]:
    return {
        "name": row.treatment,
        "colour": variable(number),
        "status": status(row),
        "figures": [texts(row, metric) for metric in shown],
        "evidence": row.evidence,
        "values": "" if row.values is None else value_check(row.values),
        "wrong": row.values is not None and not row.values.verdict,
        "not_proven": not_proven(row),
        "remarks": [*(f"first step {sentence}" for sentence in first_step(row)), *by_rank(row)],
    }


def _placed(sections: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the sections above the table, the front, which opens the figures, and the others, which follow them."""
    below = [one for one in sections if not one["leads"]]
    return {
        "leading": [one for one in sections if one["leads"]],
        "front": [one for one in below if one["name"] == _FRONT],
        "sections": [one for one in below if one["name"] != _FRONT],
    }


def _section(one: Filled, study: StudyView) -> dict[str, Any]:
    panels = () if one.section.panels is None else one.section.panels(study)
    return {
        "name": one.section.name,
        "title": one.section.title,
        "blocks": one.blocks,
        "panels": inline(one.section.title, panels),
        "caption": one.section.caption,
        "leads": one.section.leads,
    }
