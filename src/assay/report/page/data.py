"""The data of a page as files in the study's folder: its rows, its processes and their losses.

The files are `rows.csv`, `cells.csv` and `losses.csv`, and the same as `.parquet`. Figures are in base units: seconds,
bytes, nats per token, and changes as fractions. The same record gives the same bytes.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.analysis.comparison import Comparison
from assay.analysis.metrics import metrics
from assay.files import write_file
from assay.records.study import CellResult

if TYPE_CHECKING:
    import pandas
    import pyarrow


def write_data(comparison: Comparison, folder: Path) -> None:
    """Write the tables of a page into a folder, each whole or not at all. Raises `StorageError`."""
    import pyarrow

    for name, frame in frames(comparison).items():
        table = pyarrow.Table.from_pandas(frame, preserve_index=False)
        write_file(folder / f"{name}.csv", _csv(table))
        write_file(folder / f"{name}.parquet", _parquet(table))


def frames(comparison: Comparison) -> "dict[str, pandas.DataFrame]":
    """Return the tables by name.

    `rows` has a line per row of the study, as `Comparison.to_frame`. `cells` has a line per process: row, seed,
    process, wave, the levels of its factors, status, run, and its figures. `losses` has a line per process and step.
    """
    import pandas

    cells = comparison.record.cells
    return {
        "rows": comparison.to_frame(),
        "cells": pandas.DataFrame([_cell(one) for one in cells]),
        "losses": pandas.DataFrame(_losses(cells)).astype({"train_loss": float, "val_loss": float}),
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
        "parameters": result.parameters,
        "step_seconds": None if spread is None else spread.median,
        **figures,
    }


def _losses(cells: Sequence[CellResult]) -> dict[str, list[Any]]:
    """Return the columns of all losses: the training loss of step n, and the evaluation after n steps."""
    names = ("row", "seed", "process", "replicate", "step", "train_loss", "val_loss")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for one in cells:
        train, evaluated = one.curve.train_loss, dict(one.curve.evaluations)
        steps = max([len(train), *(step + 1 for step in evaluated)])
        for name, value in _named(one).items():
            columns[name].extend([value] * steps)
        columns["step"].extend(range(steps))
        columns["train_loss"].extend((*train, *[None] * (steps - len(train))))
        columns["val_loss"].extend(map(evaluated.get, range(steps)))
    return columns


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
