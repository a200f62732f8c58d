"""The last parts of a page, as tables: peaks, memory of the build, the machine, the configuration, and every run."""

from itertools import pairwise

from assay.analysis.comparison import Comparison
from assay.analysis.metrics.memory import TENSORS_PEAK_BYTES
from assay.analysis.row import Row
from assay.records.memory import highest
from assay.records.study import CellResult
from assay.report.blocks import Table
from assay.report.wording import figure, fine_percent, prediction_error
from assay.units import format_bytes, format_seconds

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
    return Table.of(columns, map(_cell, comparison.record.cells))


def _cell(one: CellResult) -> tuple[str, ...]:
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
