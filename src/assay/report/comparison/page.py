"""The page of a comparison: its table and sections, its last parts, and its data as files beside it.

The files are `rows.csv`, `cells.csv`, `losses.csv` and `memory.csv`, and the same as `.parquet`. `answer.json` is the
value that ``--json`` prints, with a digest as its last key. Figures are in base units: seconds, bytes, nats per token,
and changes as fractions. The same record gives the same bytes.
"""

# More than 400 lines: the page and the data beside it, which are one account of the same rows.

import io
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.analysis.comparison import Comparison
from assay.analysis.factors.layout import control_name
from assay.analysis.metrics import Metric, metrics
from assay.analysis.metrics.standard import TENSORS_PEAK_BYTES
from assay.analysis.row import Row
from assay.files import seal_file, write_file
from assay.records.prediction import highest
from assay.records.study import CellResult, ComparisonRecord
from assay.report.comparison.figures import CAPTIONS, FIGURES, TITLES, categories
from assay.report.comparison.row_table import footnotes, size
from assay.report.comparison.wording import (
    by_rank,
    columns,
    figure,
    fine_percent,
    first_step,
    in_nats,
    names,
    not_proven,
    prediction_error,
    status,
    texts,
    value_check,
    waits_for,
)
from assay.report.kit.blocks import Table
from assay.report.kit.drawing import DARK, LIGHT, MOST, variable, variables
from assay.report.kit.view import View, inline
from assay.report.study.lead_figure import lead_figure
from assay.report.study.sections import Filled
from assay.report.study.sections.answer import no_answer
from assay.report.study.summary import OPEN, PROVEN, UNSURE, UNTOLD, WRONG, SummaryRow, fewer
from assay.report.study.view import StudyView, finding
from assay.units import format_bytes, format_seconds, json_text

if TYPE_CHECKING:
    import pandas
    import pyarrow

_BY_ROW = ("seconds", "losses", "distances")
"""Figures with a panel for each row but the baseline."""
_OPEN = (
    *("expectations", "published", "ladder", "target_loss", "learning_rates", "changes", "percent_changes"),
    *("additivity", "pareto_front", "seconds", "losses", "predictions"),
)
"""Parts that are open at first, the most important ones first."""
_MOST_OPEN = 7
"""Most parts that are open: with the headings of the page itself, a reader sees at most twelve."""
_SHORT = {
    "expectations": "expected",
    "published": "published",
    "ladder": "ladder",
    "target_loss": "target",
    "learning_rates": "rates",
    "percent_changes": "by factor",
    "additivity": "do they add up?",
    "pareto_front": "front",
    "seconds": "loss by time",
    "losses": "loss by step",
    "predictions": "predicted",
}
"""Words of the contents."""


def content(study: StudyView) -> dict[str, Any]:
    """Return what the template `page.html` shows."""
    comparison, record = study.comparison, study.comparison.record
    rows = (comparison.baseline, comparison.again, *comparison.rows)
    first, *others = study.sentences or (no_answer(comparison),)
    return {
        "record": record,
        "heading": first,
        "sentences": others,
        "flagged": _cautions(rows),
        "lead": _lead(study),
        "summary": _summary(study),
        "control": control_name(record),
        "marks": _marks(comparison, fewer(study.summary, study.answer)),
        "size": size(comparison),
        "device": _device(comparison),
        "parts": _parts(study),
        "columns": columns(comparison.run),
        "rows": [_row(row, study.number(row.treatment), columns(comparison.run)) for row in rows],
        "footnotes": footnotes(comparison),
        "meanings": meanings(comparison),
        "configuration": configuration(comparison) | _machine_group(comparison),
        "cells": runs_table(comparison),
        "light": variables(LIGHT),
        "dark": variables(DARK),
    }


def _device(comparison: Comparison) -> str:
    """Return ``"NVIDIA H200"`` or ``"CPU, 2 threads"``; empty if no run has told where it was."""
    here = comparison.environment
    if here is None:
        return ""
    threads = f"CPU, {here.threads} thread{'' if here.threads == 1 else 's'}"
    return here.accelerator if here.accelerator and here.device.startswith("cuda") else threads


def _cautions(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """Return the first clause of each caution, with the rows that share it; the full table has all of it."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for flag in row.flags:
            found.setdefault(flag.partition(":")[0], []).append(row.label)
    return [(names(labels), flag) for flag, labels in found.items()]


def _lead(study: StudyView) -> dict[str, Any] | None:
    found = lead_figure(study)
    if found is None:
        return None
    return {"title": found.title, "panels": inline(found.title, found.panels), "caption": found.caption}


def _summary(study: StudyView) -> dict[str, Any]:
    """Return the small table: its titles, the rows that a first screen holds, and the number of the others."""
    found = study.summary
    rows = fewer(found, study.answer)
    tones = {PROVEN: "better", WRONG: "worse"}
    shown = [
        {**one._asdict(), "colour": variable(study.number(one.row.treatment)), "tone": tones.get(one.proof, "")}
        for one in rows
    ]
    return {"titles": found.titles, "rows": shown, "left": len(found.rows) - len(rows)}


def _marks(comparison: Comparison, rows: Sequence[SummaryRow]) -> str:
    """Return what the marks of the small table mean."""
    margin, marks = f"{comparison.record.loss_margin:g}{in_nats(comparison)}", []
    if any(one.loss.startswith(UNTOLD) for one in rows):
        marks.append(f"{UNTOLD}: may be worse by more than {margin}")
    if any(change.text.startswith(UNSURE) for one in rows for change in one.changes):
        marks.append(f"{UNSURE}: cannot be told from no change")
    proofs = {one.proof for one in rows}
    if PROVEN in proofs:
        marks.append(f"{PROVEN}: took effect, with right values")
    remarks = {one.remark for one in rows if one.proof == OPEN}
    if remarks:
        marks.append(f"{OPEN}: {remarks.pop() if len(remarks) == 1 else 'not proven throughout'}")
    if any(one.row.flags for one in rows):
        marks.append("!: mind the caution above")
    return f"Marks: {'; '.join(marks)}." if marks else ""


def _parts(study: StudyView) -> list[dict[str, Any]]:
    """Return sections and figures, those that are open first."""
    made = [*(_section(one, study) for one in study.sections if one.section.name != "answer"), *_figures(study)]
    parts = {one["name"]: one for one in made if one["panels"] or one["blocks"]}
    opened = [name for name in _OPEN if name in parts][:_MOST_OPEN]
    for name, one in parts.items():
        one["folded"] = name not in opened
        one["title"] = finding(study, name, one["title"])
        one["short"] = _SHORT.get(name, name.replace("_", " "))
    return [*(parts[name] for name in opened), *(one for name, one in parts.items() if name not in opened)]


def _section(one: Filled, study: StudyView) -> dict[str, Any]:
    panels = () if one.section.panels is None else one.section.panels(study)
    drawn = inline(one.section.title, panels)
    return _part(one.section.name, one.section.title, drawn, one.section.caption, one.blocks)


def _part(
    name: str, title: str, panels: Sequence[Any], caption: str = "", blocks: Sequence[Any] = (), layers: Any = ()
) -> dict[str, Any]:
    return {"name": name, "title": title, "panels": panels, "caption": caption, "blocks": blocks, "layers": layers}


def _figures(study: StudyView) -> Iterator[dict[str, Any]]:
    """Yield the figures of the rows as parts, each with its caption and what belongs to it."""
    comparison, beyond = study.comparison, _beyond(study.comparison.record)
    layers = [(one, variable(number)) for number, one in enumerate(categories(comparison), start=1)]
    for name, panels in FIGURES.items():
        drawn = inline(TITLES[name], panels(comparison))
        if name == "distances" and not drawn and comparison.rows:
            yield _part(name, TITLES[name], (), blocks=("No row differs from the baseline, to the last bit.",))
            continue
        yield _part(
            name,
            TITLES[name],
            drawn,
            CAPTIONS[name] + beyond.get(name, ""),
            (predicted_table(comparison),) if name == "predictions" and drawn else (),
            layers if name == "memory" else (),
        )
    built = built_table(comparison)
    if built.rows:
        yield _part("built", "Memory while the model is built", (), blocks=(built, _BUILT))


def _beyond(record: ComparisonRecord) -> dict[str, str]:
    """Return the sentence on rows beyond the last panel, by figure; empty where every row has one."""
    rows = {"memory": 1 + len(record.treatments), **dict.fromkeys(_BY_ROW, len(record.treatments))}
    sentence = f" Only the first {MOST} rows have a panel; the files beside the page have all."
    return {name: sentence if count > MOST else "" for name, count in rows.items()}


_BUILT = (
    "Resident memory of a process before and while its model is built, file pages included: the most of a row’s "
    "processes. The phase also loads libraries, about as much in every row. Each weight is made on its device, so the "
    "host has the first values of one weight at a time. A model made on the host first has all its weights in float32 "
    "there at once."
)


def _row(row: Row, number: int, shown: list[Metric]) -> dict[str, Any]:
    return {
        "name": row.label,
        "treatment": row.treatment,
        "colour": variable(number),
        "status": status(row),
        "figures": [texts(row, metric) for metric in shown],
        "evidence": row.evidence,
        "values": "" if row.values is None else value_check(row.values),
        "wrong": row.values is not None and not row.values.verdict,
        "not_proven": not_proven(row),
        "remarks": [
            *(f"first step {sentence}" for sentence in first_step(row)),
            *(f"step {sentence}" for sentence in waits_for(row.host_share)),
            *by_rank(row),
        ],
    }


def _machine_group(comparison: Comparison) -> dict[str, list[tuple[str, str]]]:
    found = machine(comparison)
    return {"machine and versions": found} if found else {}


def meanings(comparison: Comparison) -> list[tuple[str, str]]:
    """Return each column of the full table with its meaning, and how changes and intervals are made."""
    return [*((column.title, column.meaning) for column in columns(comparison.run)), *_METHOD]


_METHOD = (
    (
        "change and interval",
        "Every run is a process of its own. The runs of a seed are alive together and take turns: in each round "
        "every run has one timed block, in an order that is shuffled for each round. Blocks of one process share its "
        "chance effects, so a process counts once: by the mean logarithm of its blocks. The change is relative to both "
        "runs of the baseline in the same group. The bracket is computed from the deviation between processes, pooled "
        "over all rows, with Dunnett's factor for several treatments against one baseline: the brackets of a column "
        "hold together in 95 % of comparisons. A row that deviates more than the others is judged by its own "
        "deviation.",
    ),
    (
        "loss",
        "Each seed counts once. The bracket is Student's t over the seeds, with Bonferroni's correction for the number "
        "of treatments.",
    ),
    (
        "not distinguishable",
        "A change whose interval contains zero. It may exist, but be too small for this comparison.",
    ),
    ("bit-equal", "The loss of every process equals the baseline's at the same seed, to the last bit."),
    (
        "disturbed",
        "A timed block in which other programs, or a hypervisor, used more than a tenth of the processor time. Every "
        "run times another block, and the figures leave it out.",
    ),
    (
        "predicted",
        "The estimate from before the run. It is computed from the configuration and this machine's measured rates, "
        "and never fitted to this comparison.",
    ),
    (
        "proof",
        "Evidence for each optimization from a recorded step of the program that was timed. A second recorded step, "
        "after the last checkpoint, must show it again. A run whose proof fails has no figures in its row.",
    ),
)

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
        row.label,
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
    known = [found for row in rows if (found := _built(row.label, comparison.record.of(row.treatment)))]
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
    columns = ("run of", "id", "status", "median step (quartiles)", "peak of tensors", "reached in", "wall clock")
    return Table.of(columns, map(_ran_cell, comparison.record.cells))


def _ran_cell(one: CellResult) -> tuple[str, ...]:
    result, spread = one.result, one.result.speed.step_seconds
    quartiles = "" if spread is None else f" ({format_seconds(spread.lower)} – {format_seconds(spread.upper)})"
    return (
        one.cell.name,
        result.run,
        result.status.value.replace("_", " "),
        "" if spread is None else format_seconds(spread.median) + quartiles,
        format_bytes(result.memory.tensors_peak_bytes) if result.memory.tensors_peak_bytes else "",
        result.memory.tensors_peak_instant or "",
        format_seconds(sum(result.speed.phase_seconds.values())) if result.speed.phase_seconds else "",
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
    spread = result.speed.step_seconds
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
        "epoch_seconds": result.speed.epoch_seconds,
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
