"""One self-contained page: the table, the figures, the proofs, and how each number was made. It needs no network.

The template engine escapes all text from outside (names, reasons, a processor's own name). Only the figures, which are
made here, are inserted as they are.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

from assay.analysis.comparison import Comparison
from assay.analysis.metrics.memory import TENSORS_PEAK_BYTES
from assay.analysis.row import Row
from assay.config.home import Home
from assay.errors import UsageError, shown
from assay.files import write_file
from assay.records.evidence import BEGINNING_ONLY
from assay.records.study import CellResult, ComparisonRecord
from assay.report.footnotes import footnotes
from assay.report.page.figures import FIGURES, TITLES
from assay.report.page.theme import DARK, LIGHT, svg, variable, variables
from assay.report.study.section import Filled
from assay.report.wording import (
    by_rank,
    columns,
    figure,
    fine_percent,
    first_step,
    prediction_error,
    status,
    texts,
    value_check,
)
from assay.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from jinja2 import Environment


_FIRST = b"<!doctype html>"
"""Start of every page."""


def write_page(comparison: Comparison, home: Home, path: Path | None = None) -> Path:
    """Write the page to `path`, or to `index.html` in the folder of the comparison's record; whole or not at all.

    The folder also gets the page's data (`data.write_data`). Returns the page's path. Raises `UsageError` as
    `check_page`, and `StorageError`.
    """
    from assay.report.page.data import write_data

    folder = home.reports / comparison.record.id
    if path is None:
        path = folder / "index.html"
    else:
        check_page(path)
    write_data(comparison, folder)
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
    """Return a name that may be broken after each ``+`` and ``:``."""
    text = str(escape(name))
    for joint in "+:":
        text = text.replace(joint, f"{joint}<wbr>")
    return Markup(text)


def inline(name: str, comparison: Comparison) -> Markup:
    """Return a figure as an SVG element; empty if there is nothing to draw."""
    figure = FIGURES[name](comparison)
    return Markup() if figure is None else Markup(svg(figure, TITLES[name]))


def _content(comparison: Comparison) -> dict[str, Any]:
    record = comparison.record
    rows = (comparison.baseline, comparison.again, *comparison.rows)
    from assay.report.study.sections import filled  # loads numpy, which other results do not need

    sections = [_section(one, comparison) for one in filled(comparison)]
    return {
        "record": record,
        "heading": _heading(record),
        "columns": columns(),
        "rows": [_row(row, max(0, number - 1)) for number, row in enumerate(rows)],
        "legend": [
            (name, variable(number)) for number, name in enumerate((comparison.baseline.treatment, *record.treatments))
        ],
        "leading": [one for one in sections if one["leads"]],
        "sections": [one for one in sections if not one["leads"]],
        "footnotes": footnotes(comparison),
        "flagged": [(row.treatment, flag) for row in rows for flag in row.flags],
        **{name: inline(name, comparison) for name in FIGURES},
        "predicted": [found for row in rows if (found := _prediction(row, record.of(row.treatment)))],
        "machine": _machine(comparison),
        "configuration": _configuration(comparison),
        "cells": [_cell(one) for one in record.cells],
        "light": variables(LIGHT),
        "dark": variables(DARK),
    }


def _heading(record: ComparisonRecord) -> str:
    """Return the title of the page: a study by its name, a comparison by its base."""
    count = len(record.treatments)
    rows = "row" if record.name else "treatment"
    return f"{record.name or record.title}: {count} {rows}{'s' if count > 1 else ''} against the baseline"


def _row(row: Row, number: int) -> dict[str, Any]:
    return {
        "name": row.treatment,
        "colour": variable(number),
        "status": status(row),
        "figures": [texts(row, metric) for metric in columns()],
        "evidence": row.evidence,
        "values": "" if row.values is None else value_check(row.values),
        "wrong": row.values is not None and not row.values.verdict,
        "beginning_only": BEGINNING_ONLY if row.proven_until == "beginning" else "",
        "remarks": [*(f"first step {sentence}" for sentence in first_step(row)), *by_rank(row)],
    }


def _section(one: Filled, comparison: Comparison) -> dict[str, Any]:
    drawn = None if one.section.figure is None else one.section.figure(comparison)
    return {
        "title": one.section.title,
        "blocks": one.blocks,
        "figure": Markup() if drawn is None else Markup(svg(drawn, one.section.title)),
        "caption": one.section.caption,
        "leads": one.section.leads,
    }


def _prediction(row: Row, cells: tuple[CellResult, ...]) -> dict[str, str] | None:
    """Predicted and measured peak of one row, with their instants; None if one of the two is missing."""
    error, predicted = prediction_error(row), row.predicted
    if error is None or predicted is None:
        return None
    instants = (one.result.memory.tensors_peak_instant for one in cells)
    return {
        "name": row.treatment,
        "predicted": format_bytes(predicted.tensors_peak_bytes or 0),
        "measured": figure(TENSORS_PEAK_BYTES, row.metrics[TENSORS_PEAK_BYTES.name]),
        "error": fine_percent(error),
        "predicted_instant": predicted.tensors_peak_instant or "–",
        "measured_instant": next((instant for instant in instants if instant), "–"),
    }


def _machine(comparison: Comparison) -> list[tuple[str, str]]:
    here = comparison.environment
    if here is None:
        return []
    facts = [
        ("processor", f"{here.processor}, {here.cores} cores"),
        ("memory", format_bytes(here.memory_bytes)),
        ("accelerator", here.accelerator or ""),
        ("driver", here.driver or ""),
        ("device used", here.device),
        ("threads", str(here.threads)),
        ("pinned to cores", ", ".join(map(str, here.pinned))),
        ("assay", here.assay),
        ("torch", here.torch),
        ("Python", here.python),
        *sorted(here.packages.items()),
        ("corpus digest", (here.corpus_digest or "")[:16]),
    ]
    return [(name, value) for name, value in facts if value]


def _configuration(comparison: Comparison) -> dict[str, list[tuple[str, str]]]:
    """Configuration of the baseline by group, without values that are None."""
    base = comparison.record.cells[0].cell.run if comparison.record.cells else comparison.record.base
    groups = base.model_dump(mode="json", exclude={"optimizations", "seed"})
    found: dict[str, list[tuple[str, str]]] = {"run": [("seeds", ", ".join(map(str, comparison.record.seeds)))]}
    for name, value in groups.items():
        if isinstance(value, dict):
            found[name] = [(key, str(item)) for key, item in value.items() if item is not None]
        elif value is not None:
            found["run"].append((name, str(value)))
    return found


def _cell(one: CellResult) -> dict[str, str]:
    result = one.result
    spread = result.step_seconds
    return {
        "name": one.cell.name,
        "run": result.run,
        "status": result.status.value.replace("_", " "),
        "parameters": format_count(result.parameters) if result.parameters else "",
        "step": f"{format_seconds(spread.median)} ({format_seconds(spread.lower)} – {format_seconds(spread.upper)})"
        if spread
        else "",
        "peak": format_bytes(result.memory.tensors_peak_bytes) if result.memory.tensors_peak_bytes else "",
        "instant": result.memory.tensors_peak_instant or "",
        "wall": format_seconds(sum(result.phase_seconds.values())) if result.phase_seconds else "",
    }
