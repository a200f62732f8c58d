"""The page of a comparison: its table and sections, its last parts, and its data as files beside it.

The files are `rows.csv`, `cells.csv`, `losses.csv` and `memory.csv`, and the same as `.parquet`. `answer.json` is the
value that ``--json`` prints, with a digest as its last key. Figures are in base units: seconds, bytes, nats per token,
and changes as fractions. The same record gives the same bytes.
"""

import io
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.analysis.comparison import Comparison
from assay.analysis.metrics import Metric, metrics
from assay.analysis.metrics.memory import TENSORS_PEAK_BYTES
from assay.analysis.row import Row
from assay.files import write_file
from assay.records.memory import highest
from assay.records.study import CellResult, ComparisonRecord
from assay.report.blocks import Table
from assay.report.comparison.figures import FIGURES, TITLES, categories
from assay.report.comparison.row_table import footnotes, size
from assay.report.comparison.wording import (
    by_rank,
    columns,
    figure,
    fine_percent,
    first_step,
    not_proven,
    prediction_error,
    status,
    texts,
    value_check,
)
from assay.report.kit.drawing import DARK, LIGHT, MOST, variable, variables
from assay.report.kit.page import inline
from assay.report.kit.view import View
from assay.report.study.section import Filled
from assay.report.study.view import StudyView
from assay.sealed import seal_file
from assay.units import format_bytes, format_seconds, json_text

if TYPE_CHECKING:
    import pandas
    import pyarrow

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


_BUILD = "build"
"""Phase of a run in which its weights are made."""
_FLOAT32_BYTES = 4


def predicted_table(comparison: Comparison) -> Table:
    """Return predicted and measured peaks of tensors with their instants, for rows that have both."""
    rows = (comparison.baseline, *comparison.rows)
    found = (_prediction(row, comparison.record.of(row.treatment)) for row in rows)
    columns = ("treatment", "predicted", "measured", "error", "predicted instant", "measured instant")
    return Table.of(columns, filter(None, found))


def _prediction(row: Row, cells: tuple[CellResult, ...]) -> tuple[str, ...] | None:
    error, predicted = prediction_error(row), row.predicted
    if error is None or predicted is None:
        return None
    instants = (one.result.memory.tensors_peak_instant for one in cells)
    return (
        row.treatment,
        format_bytes(predicted.tensors_peak_bytes or 0),
        figure(TENSORS_PEAK_BYTES, row.metrics[TENSORS_PEAK_BYTES.name]),
        fine_percent(error),
        predicted.tensors_peak_instant or "–",
        next((instant for instant in instants if instant), "–"),
    )


def built_table(comparison: Comparison) -> Table:
    """Return the memory while the model was built, beside all weights in float32, for rows whose record has that phase.

    Figures are the most of a row's processes. Only a device with a counter of its own has the tensors of a phase.
    """
    rows = (comparison.baseline, *comparison.rows)
    known = [found for row in rows if (found := _built(row.treatment, comparison.record.of(row.treatment)))]
    columns = ("treatment", "process, before", "process, peak", "weights in float32", "tensors, peak")
    counted = len(columns) if any(texts[-1] for texts in known) else len(columns) - 1
    return Table.of(columns[:counted], (texts[:counted] for texts in known), columns[1:counted])


def _built(name: str, cells: tuple[CellResult, ...]) -> tuple[str, ...] | None:
    phases = [
        (before, built)
        for one in cells
        for (_, before), (phase, built) in pairwise(one.result.memory.phases.items())
        if phase == _BUILD and built.process_peak_bytes is not None
    ]
    if not phases:
        return None
    weights = highest(one.result.parameters for one in cells)
    figures = (
        highest((before.anonymous_bytes or 0) + (before.file_bytes or 0) for before, _ in phases),
        highest(built.process_peak_bytes for _, built in phases),
        None if weights is None else weights * _FLOAT32_BYTES,
        highest(built.tensors_peak_bytes for _, built in phases),
    )
    return name, *("" if figure is None else format_bytes(figure) for figure in figures)


def machine(comparison: Comparison) -> list[tuple[str, str]]:
    """Return the machine and the versions of the baseline's runs."""
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


def configuration(comparison: Comparison) -> dict[str, list[tuple[str, str]]]:
    """Return the configuration of the baseline by group, without values that are None."""
    base = comparison.record.cells[0].cell.run if comparison.record.cells else comparison.record.base
    groups = base.model_dump(mode="json", exclude={"optimizations", "seed"})
    found: dict[str, list[tuple[str, str]]] = {"run": [("seeds", ", ".join(map(str, comparison.record.seeds)))]}
    for name, value in groups.items():
        if isinstance(value, dict):
            found[name] = [(key, str(item)) for key, item in value.items() if item is not None]
        elif value is not None:
            found["run"].append((name, str(value)))
    return found


def runs_table(comparison: Comparison) -> Table:
    """Return every run with its figures."""
    columns = ("cell", "run", "status", "median step (quartiles)", "peak of tensors", "reached in", "wall clock")
    return Table.of(columns, map(_ran_cell, comparison.record.cells))


def _ran_cell(one: CellResult) -> tuple[str, ...]:
    result, spread = one.result, one.result.step_seconds
    quartiles = "" if spread is None else f" ({format_seconds(spread.lower)} – {format_seconds(spread.upper)})"
    return (
        one.cell.name,
        result.run,
        result.status.value.replace("_", " "),
        "" if spread is None else format_seconds(spread.median) + quartiles,
        format_bytes(result.memory.tensors_peak_bytes) if result.memory.tensors_peak_bytes else "",
        result.memory.tensors_peak_instant or "",
        format_seconds(sum(result.phase_seconds.values())) if result.phase_seconds else "",
    )


_OF_STEP = ("train_loss", "seconds", "val_loss")
"""Figures of a step, as columns."""
_MEMORY = ("row", "place", "instant", "category", "bytes")


def write_data(shown: View, folder: Path, prefix: str = "") -> None:
    """Write the answer and the tables of a page into a folder, each whole or not at all, as `prefix` and its name.

    Raises `StorageError`.
    """
    import pyarrow

    write_file(folder / f"{prefix}answer.json", seal_file(json_text(shown.values(), indent=1, ensure_ascii=False)))
    for name, frame in frames(shown.comparison).items():
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
        write_file(folder / f"{prefix}{name}.csv", _csv(table))
        write_file(folder / f"{prefix}{name}.parquet", _parquet(table))


def frames(comparison: Comparison) -> "dict[str, pandas.DataFrame]":
    """Return the tables by name.

    `rows` has a line per row of the study, as `Comparison.to_frame`. `cells` has a line per process: row, seed,
    process, wave, the levels of its factors, status, run, and its figures. `losses` has a line per process and step,
    with its seconds. `memory` has one per row, instant and category: the prediction.
    """
    import pandas

    cells = comparison.record.cells
    return {
        "rows": comparison.to_frame(),
        "cells": pandas.DataFrame([_data_cell(one) for one in cells]),
        "losses": pandas.DataFrame(_losses(cells)).astype(dict.fromkeys(_OF_STEP, float)),
        "memory": pandas.DataFrame(_memory(comparison), columns=_MEMORY),
    }


def _named(one: CellResult) -> dict[str, Any]:
    """Return what distinguishes a process from all others of its study."""
    cell = one.cell
    return {"row": cell.treatment, "seed": cell.seed, "process": cell.process, "replicate": cell.replicate}


def _data_cell(one: CellResult) -> dict[str, Any]:
    result = one.result
    spread = result.step_seconds
    figures = {name: metric.of_run(result) for name, metric in metrics().items() if metric.of is not None}
    return {
        **_named(one),
        "wave": one.wave,
        **one.cell.levels,
        "status": result.status.value,
        "reason": result.reason,
        "run": result.run,
        "steps": result.steps,
        "tokens": result.tokens,
        "documents": result.documents,
        "parameters": result.parameters,
        "step_seconds": None if spread is None else spread.median,
        "epoch_seconds": result.epoch_seconds,
        **figures,
    }


def _losses(cells: Sequence[CellResult]) -> dict[str, list[Any]]:
    """Return the columns of all steps: loss and seconds of step n, and the evaluation after n steps."""
    names = ("row", "seed", "process", "replicate", "step", *_OF_STEP)
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for one in cells:
        curve, evaluated = one.curve, dict(one.curve.evaluations)
        count = max([len(curve.train_loss), *(step + 1 for step in evaluated)])
        for name, value in _named(one).items():
            columns[name].extend([value] * count)
        columns["step"].extend(range(count))
        for name, values in zip(_OF_STEP, (curve.train_loss, curve.step_seconds), strict=False):
            columns[name].extend((*values, *[None] * (count - len(values))))
        columns["val_loss"].extend(map(evaluated.get, range(count)))
    return columns


def _memory(comparison: Comparison) -> Iterator[tuple[str, int, str, str, int]]:
    for row in (comparison.baseline, *comparison.rows):
        found = row.predicted.memory if row.predicted else None
        for place, instant in enumerate(found.instants if found else ()):
            for name, counts in found.layers.items() if found else ():
                yield row.treatment, place, instant, name, counts[place]


def _csv(table: "pyarrow.Table") -> bytes:
    from pyarrow import csv

    stream = io.BytesIO()
    csv.write_csv(table, stream, csv.WriteOptions(quoting_style="needed"))
    return stream.getvalue()


def _parquet(table: "pyarrow.Table") -> bytes:
    from pyarrow import parquet

    stream = io.BytesIO()
    parquet.write_table(table, stream)
    return stream.getvalue()
