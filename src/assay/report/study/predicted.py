"""A study that is predicted on a GPU, as plain rows and as a page: figures of each row, changes, and heat maps.

The first line says that nothing was measured, and so does each heading.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.analysis.predicted_rows import (
    COMPARED,
    REQUESTED,
    SECONDS,
    Figure,
    Rank,
    change,
    deviations,
    grids,
    held_memory,
    published_grids,
    ranks,
    told_apart,
    utilization,
)
from assay.files import write_file
from assay.records.study import BASELINE
from assay.report.comparison.wording import names, points
from assay.report.kit.blocks import UNKNOWN, Block, Facts, Table, amount
from assay.report.kit.drawing import DARK, LIGHT, variables
from assay.report.kit.view import check_page, inline, render_template
from assay.report.predictions import by_kernels, within
from assay.report.study.sections.panels import map_panels
from assay.units import format_bytes, format_flops, format_percent

if TYPE_CHECKING:
    from assay.analysis.factors.additivity import Grid, GridField
    from assay.cost.simulation.reserved import Interval
    from assay.report.kit.drawing import Panel
    from assay.studies.predicted import PredictedRow, PredictedStudy

PREDICTED = "Predicted, not measured"
"""Words that stand on every screen of a predicted study."""
_TITLES = {one.name: one.title for one in COMPARED}
_SMALL = "≈ "
"""Mark of a change of time within its margin."""


def predicted_study_report(study: "PredictedStudy") -> Iterator[Block]:
    """Yield the parts of the answer."""
    yield from leading(study)
    yield from matrices(study)
    yield from wording(study)


def leading(study: "PredictedStudy") -> Iterator[Block]:
    """Yield what the answer is, a table of the rows, and why some of them are not there."""
    yield f"{PREDICTED}: nothing was trained, and no {study.machine.accelerators[0].name} is needed."
    yield Facts.of(_about(study))
    yield _rows(study)
    yield from (f"{row.label} is not there: {row.problem}" for row in study.named if row.problem)
    graphs = [row.label for row in study.named if row.found is not None and row.found.cost.replayed]
    if graphs:
        yield f"Captured graphs have a pool of their own, which is not predicted: {names(graphs)}."


def matrices(study: "PredictedStudy") -> Iterator[Block]:
    """Yield tables of changes and of deviations from additivity: by two factors, or by row and stack."""
    yield from _factors(study) if grids(study) else _stacks(study)


def _about(study: "PredictedStudy") -> Iterator[tuple[str, str]]:
    gpu = study.machine.accelerators[0]
    named = {"study": study.name, "question": study.question}
    yield from ((label, text) for label, text in named.items() if text)
    yield "base", study.base
    yield "device", f"{gpu.name}, {format_bytes(gpu.memory_bytes)}, as its datasheet has it; it may be absent"
    yield "time", by_kernels(study.device)
    control = study.known[BASELINE]
    if control.step_time is not None:
        yield "baseline", within(control.step_time)


def _rows(study: "PredictedStudy") -> Table:
    columns = ("row", "fits", "requested", "reserved", "in use", "saved", "work", "step time", "by time", "MFU")
    places = ranks(study)
    rows = (_row(row, places.get(row.label)) for row in study.named)
    return Table.of(columns, rows, columns[2:], spare=("in use", "work", "reserved", "saved", "MFU", "by time"))


def _row(row: "PredictedRow", place: Rank | None) -> tuple[str, ...]:
    found = row.found
    if found is None:
        return (row.label, "not there", *[UNKNOWN] * 8)
    memory, share, step = held_memory(found), utilization(found), found.step_time
    return (
        row.label,
        memory.fit or UNKNOWN,
        amount(REQUESTED.of(found)),
        _between(memory.reserved),
        _between(memory.in_use),
        amount(found.timeline.saved_bytes),
        format_flops(found.step_flops),
        UNKNOWN if step is None else within(step).replace(", within", ""),
        UNKNOWN if place is None else "–".join(dict.fromkeys((str(place.first), str(place.last)))),
        UNKNOWN if share is None else f"{share:.1%}".replace("%", " %"),
    )


def _between(bytes_: "Interval | None") -> str:
    if bytes_ is None:
        return UNKNOWN
    return " to ".join(dict.fromkeys(map(format_bytes, (bytes_.low, bytes_.high))))


def _factors(study: "PredictedStudy") -> Iterator[Block]:
    """Yield tables of each figure by two factors, and those of the document that the study repeats."""
    for grid in grids(study):
        yield from _grid(grid, f"{_TITLES[grid.metric]}, predicted", partial(_mark, study, grid.metric))
    for column, grid in published_grids(study):
        yield from _grid(grid, f"{column.name}, in the document", lambda one, other: "")
        if column.note:
            yield f"{column.name}: {column.note}"
    if published_grids(study) and study.published is not None:
        yield f"The document is {study.published.document}."


def _grid(grid: "Grid", heading: str, mark: Callable[[str, str], str]) -> Iterator[Block]:
    """Yield the changes of one figure, those against each column's own first row, and the deviations, in percent.

    `mark` returns what stands before the change of one row against another.
    """
    by = f"by {grid.down} and {grid.across}"
    first = {level: one.row if one else "" for level, one in zip(grid.across_levels, grid.fields[0], strict=True)}

    def table(text: "Callable[[GridField, str], str]") -> Table:
        rows = (
            (
                level,
                *(UNKNOWN if one is None else text(one, first[name]) for name, one in zip(first, fields, strict=True)),
            )
            for level, fields in zip(grid.down_levels, grid.fields, strict=True)
        )
        return Table.of((grid.down, *grid.across_levels), rows, right=grid.across_levels)

    def own(one: "GridField", top: str) -> str:
        return UNKNOWN if one.column_change is None else f"{mark(one.row, top)}{points(one.column_change)}"

    yield f"{heading}: change against the baseline in percent, {by}"
    yield table(lambda one, top: f"{mark(one.row, BASELINE)}{points(one.change)}")
    yield f"{heading}: change against the first row of the column in percent, {by}"
    yield table(own)
    yield f"{heading}: deviation from the sum of the single changes in points, {by}"
    yield table(lambda one, top: UNKNOWN if one.deviation is None else points(one.deviation))


def _mark(study: "PredictedStudy", metric: str, one: str, other: str) -> str:
    """Return the mark of a change of time between two rows that is within their margin; empty for other changes."""
    return _SMALL if metric == SECONDS.name and one != other and not told_apart(study, one, other) else ""


def _stacks(study: "PredictedStudy") -> Iterator[Block]:
    """Yield the change of each row, and the deviation of each stack from the sum of its parts."""
    titles = [one.title for one in COMPARED]
    rows = [(row.label, *(_text(study, one, row.label) for one in COMPARED)) for row in study.named[1:] if row.found]
    yield "Change against the baseline, predicted"
    yield Table.of(("row", *titles), rows, titles)
    found = {one.metric: {row.row: row.points.value for row in one.deviations} for one in deviations(study)}
    stacks = [row.label for row in study.rows if any(row.label in one for one in found.values())]
    if stacks:
        lines = [[found.get(one.name, {}).get(label) for one in COMPARED] for label in stacks]
        texts = ([UNKNOWN if one is None else points(one) for one in line] for line in lines)
        yield "Deviation from the sum of the parts in points, predicted"
        yield Table.of(("stack", *titles), [(label, *line) for label, line in zip(stacks, texts, strict=True)], titles)


def _text(study: "PredictedStudy", figure: Figure, label: str) -> str:
    found = change(study, figure, label)
    if found is None:
        return UNKNOWN
    return f"{_mark(study, figure.name, label, BASELINE)}{format_percent(found)}"


def wording(study: "PredictedStudy") -> Iterator[str]:
    """Yield how to read the tables, and what the design can tell."""
    yield (
        "Figures are those of `assay estimate --device`. Reserved and in use are intervals, and a row fits if the "
        "upper end does. MFU counts the model's own FLOPs against the peak of the dtypes in which a step multiplies."
    )
    yield (
        "The deviation is the change of a row less the sum of its single changes, so savings that multiply deviate. "
        "Bytes and FLOPs are counted by the ledger. Losses are not predicted."
    )
    yield (
        f"A change of time that is smaller than the margin has the mark {_SMALL.strip()}: its sign is not known, and "
        "it is not ranked. Deviations of times are no surer than the times."
    )
    if study.context:
        yield f"Rows are ranked by time at each level of {names(study.context)}."
    yield from study.notes


def predicted_study_values(study: "PredictedStudy") -> dict[str, Any]:
    """Return the whole answer as plain values for JSON."""
    gpu = study.machine.accelerators[0]
    return {
        "predicted": True,
        "device": study.device,
        "device_name": gpu.name,
        "memory_bytes": gpu.memory_bytes,
        "name": study.name,
        "kind": study.kind,
        "question": study.question,
        "base": study.base,
        "context": list(study.context),
        "rows": [_plain(study, row, ranks(study).get(row.label)) for row in study.rows],
        "percent_changes": [one.model_dump(mode="json") for one in grids(study)],
        "deviations": [one.model_dump(mode="json") for one in deviations(study)],
        "document": _document(study),
        "notes": list(study.notes),
    }


def _plain(study: "PredictedStudy", row: "PredictedRow", place: Rank | None) -> dict[str, Any]:
    known = {"row": row.label, "levels": dict(row.levels), "named": not row.paired}
    if row.found is None:
        return {**known, "problem": row.problem}
    memory = held_memory(row.found)
    return {
        **known,
        "estimate": row.found.predicted(),
        "requested_peak_bytes": _ends(None if row.found.cost.replayed else row.found.requested_bytes),
        "reserved_bytes": _ends(memory.reserved),
        "in_use_bytes": _ends(memory.in_use),
        "fits": memory.fit,
        "mfu": utilization(row.found),
        "changes": {one.name: change(study, one, row.label) for one in COMPARED},
        "time_told_apart": told_apart(study, row.label, BASELINE),
        "rank_by_time": None if place is None else list(place),
    }


def _ends(bytes_: "Interval | None") -> dict[str, int] | None:
    return None if bytes_ is None else {"low": bytes_.low, "high": bytes_.high}


def _document(study: "PredictedStudy") -> dict[str, Any] | None:
    if study.published is None:
        return None
    found: list[tuple[str, Grid]] = [(column.name, grid) for column, grid in published_grids(study)]
    return {
        "document": study.published.document,
        "percent_changes": [{**grid.model_dump(mode="json"), "column": name} for name, grid in found],
    }


_MAP_TITLES = {one.name: f"{one.title}, predicted" for one in COMPARED}
CAPTION = (
    "Change against the baseline in percent, and deviation from the sum of the single changes in percentage points, "
    "predicted. Blue is lower, orange is higher. The tables mark changes of time that are within their margin."
)


def write_predicted_page(study: "PredictedStudy", path: Path) -> Path:
    """Write the page, whole or not at all, and return its path. Raises `UsageError` as `check_page`, `StorageError`."""
    check_page(path)
    write_file(path, render_predicted(study).encode())
    return path.absolute()


def render_predicted(study: "PredictedStudy") -> str:
    """Return the page as text."""
    drawn = {"panels": inline(PREDICTED, maps(study)), "caption": CAPTION}
    return render_template("predicted.html", **texts(study), **drawn, light=variables(LIGHT), dark=variables(DARK))


def texts(study: "PredictedStudy") -> dict[str, Any]:
    """Return the content of a page without its figures, which the dashboard shows as well."""
    return {
        "kicker": PREDICTED,
        "heading": f"{study.name or study.base} on {study.machine.accelerators[0].name}",
        "leading": list(leading(study)),
        "matrices": list(matrices(study)),
        "wording": list(wording(study)),
    }


def maps(study: "PredictedStudy") -> "tuple[Panel, ...]":
    """Return the heat maps of a study with several factors; none of a comparison."""
    return map_panels(grids(study), _MAP_TITLES.__getitem__)
