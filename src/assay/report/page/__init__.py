"""One self-contained page: the table, the figures, the proofs, and how each number was made. It needs no network.

The template engine escapes all text from outside (names, reasons, a processor's own name). Only the figures, which are
made here, are inserted as they are.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from assay.analysis.comparison import Comparison
from assay.analysis.metrics import Metric
from assay.analysis.row import Row
from assay.config.home import Home
from assay.errors import UsageError, shown
from assay.files import write_file
from assay.records.study import ComparisonRecord
from assay.report.footnotes import footnotes, size
from assay.report.page.compared import FIGURES, TITLES
from assay.report.page.compared.memory import categories
from assay.report.page.panels import MOST, Panel, alone
from assay.report.page.ran import built_table, configuration, machine, predicted_table, runs_table
from assay.report.page.theme import DARK, LIGHT, svg, variable, variables
from assay.report.study.section import Filled
from assay.report.wording import by_rank, columns, first_step, not_proven, status, texts, value_check

if TYPE_CHECKING:
    from jinja2 import Environment


_FIRST = b"<!doctype html>"
"""Start of every page."""

_FRONT = "pareto_front"
"""Name of the section with memory against time."""
_BY_ROW = ("seconds", "losses", "distances")
"""Figures with a panel for each row but the baseline."""


def write_page(comparison: Comparison, home: Home, path: Path | None = None) -> Path:
    """Write the page to `path`, or to `index.html` in the folder of the comparison's record; whole or not at all.

    Beside it is the page's data (`data.write_data`); the names of its files begin with that of `path`, because other
    files may be there. Returns the page's path. Raises `UsageError` as `check_page`, and `StorageError`.
    """
    from assay.report.page.data import write_data

    if path is None:
        path, prefix = home.reports / comparison.record.id / "index.html", ""
    else:
        check_page(path)
        prefix = f"{path.stem}-"
    write_data(comparison, path.parent, prefix)
    write_file(path, render(comparison).encode())
    return path.absolute()


def check_page(path: Path) -> None:
    """Raise `UsageError` if a page cannot be written to a path, or would replace a file that is no page."""
    named = f"--page {shown(str(path))}"
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{named} is not a file; name a file that ends in .html")
        existed = path.exists()
        with path.open("ab+") as file:
            file.seek(0)
            first = file.read(len(_FIRST))
        if not existed:
            path.unlink()
        elif first and first.lower() != _FIRST:
            raise UsageError(f"{named} is a file that is no page, and would be replaced; name another file")
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{named} cannot be written ({reason}); name a file in a folder that can be written") from None


def render(comparison: Comparison) -> str:
    """Return the page as text; a study of scaling has a page of its own."""
    from assay.report.page.scaled import content
    from assay.scaling.studied.answer import answer_of

    scaled = answer_of(comparison.record)
    if scaled is not None:
        return render_template("scaled.html", **content(scaled))
    return render_template("page.html", **_content(comparison))


def render_template(name: str, **content: Any) -> str:
    """Return a page as text: the template of this name, with its content escaped."""
    return _templates().get_template(name).render(content)


def _templates() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("assay.report.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["breakable"] = breakable
    return templates


def breakable(name: str) -> Markup:
    """Return a name that may be broken after each ``+``, ``:`` and ``=``."""
    text = str(escape(name))
    for joint in "+:=":
        text = text.replace(joint, f"{joint}<wbr>")
    return Markup(text)


def inline(heading: str, panels: Iterable[Panel]) -> list[dict[str, Markup]]:
    """Return panels with their titles and SVG elements; readers who cannot see them are told heading and title."""
    return [
        {"title": breakable(one.title), "svg": Markup(svg(alone(one), f"{heading}: {one.title}"))} for one in panels
    ]


def _content(comparison: Comparison) -> dict[str, Any]:
    record = comparison.record
    rows = (comparison.baseline, comparison.again, *comparison.rows)
    from assay.report.study.sections import filled  # loads numpy, which other results do not need

    sections = [_section(one, comparison) for one in filled(comparison)]
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


def _section(one: Filled, comparison: Comparison) -> dict[str, Any]:
    panels = () if one.section.panels is None else one.section.panels(comparison)
    return {
        "name": one.section.name,
        "title": one.section.title,
        "blocks": one.blocks,
        "panels": inline(one.section.title, panels),
        "caption": one.section.caption,
        "leads": one.section.leads,
    }
