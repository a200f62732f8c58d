"""The data of a page as files beside it: its rows, its processes, their steps, and memory over a step.

The files are `rows.csv`, `cells.csv`, `losses.csv` and `memory.csv`, and the same as `.parquet`. `answer.json` is the
value that ``--json`` prints, with a digest as its last key. Figures are in base units: seconds, bytes, nats per token,
and changes as fractions. The same record gives the same bytes.
"""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.analysis.comparison import Comparison
from assay.analysis.metrics import metrics
from assay.files import write_file
from assay.records.study import CellResult
from assay.report.views import View
from assay.sealed import seal_file
from assay.units import json_text

if TYPE_CHECKING:
    import pandas
    import pyarrow

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
        "cells": pandas.DataFrame([_cell(one) for one in cells]),
        "losses": pandas.DataFrame(_losses(cells)).astype(dict.fromkeys(_OF_STEP, float)),
        "memory": pandas.DataFrame(_memory(comparison), columns=_MEMORY),
    }


def _named(one: CellResult) -> dict[str, Any]:
    """Return what distinguishes a process from all others of its study."""
    cell = one.cell
    return {"row": cell.treatment, "seed": cell.seed, "process": cell.process, "replicate": cell.replicate}


def _cell(one: CellResult) -> dict[str, Any]:
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
