"""Records of studies with several factors that nobody measured, with the figures of a table or of a formula."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from assay.analysis.comparison import Comparison, analyse
from assay.config import load
from assay.optimizations import resolve_run
from assay.records.study import AGAIN, BASELINE, Cell, CellResult, ComparisonRecord, Curve, Protocol
from support.comparisons import TREATMENTS, record, result

Figures = tuple[float, float, float]
"""Tensor peak, step time and loss, in units of the demo's control."""
Formula = Callable[[Mapping[str, str]], Figures]

LOSS = 2.41
"""Loss of a row whose figure is 1."""


def factorial(factors: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Every combination of levels, the control first."""
    return [dict(zip(factors, levels, strict=True)) for levels in product(*factors.values())]


def study(
    rows: Sequence[Mapping[str, str]],
    figures: Formula,
    *,
    seeds: int = 3,
    processes: int = 1,
    between: float = 0.0,
    apart: float = 0.0,
    labels: Callable[[Mapping[str, str]], str] | None = None,
    **fields: Any,
) -> ComparisonRecord:
    """A study with these rows; processes deviate by `between`, and losses of a row from seed to seed by `apart`."""
    base = resolve_run(load("demo").with_vocabulary())
    label = labels or (lambda levels: ", ".join(f"{key}={level}" for key, level in levels.items()))
    named = [(BASELINE, 0, rows[0]), (AGAIN, 1, rows[0]), *((label(row), 0, row) for row in rows[1:])]
    cells = []
    for seed, process in product(range(seeds), range(processes)):
        for name, replicate, levels in named:
            run = base.model_copy(update={"seed": seed})
            cell = Cell(treatment=name, levels=dict(levels), replicate=replicate, seed=seed, process=process, run=run)
            cells.append(_measured(cell, figures(levels), seed * processes + process, between, apart))
    protocol = Protocol(blocks=5, processes=processes, resident=7, available_bytes=20 * 10**9)
    values: dict[str, Any] = {
        "seeds": tuple(range(seeds)),
        "treatments": tuple(name for name, _, _ in named[2:]),
        "protocol": protocol,
        "cells": tuple(cells),
        "kind": "factorial",
        "nudged": (),
        "rounds": (),
    }
    return record(treatments=TREATMENTS[:1], seeds=1).model_copy(update={**values, **fields})


def _measured(cell: Cell, figures: Figures, wave: int, between: float, apart: float) -> CellResult:
    tensors, step, loss = figures
    # Runs of the control repeat bit for bit on a CPU, so its two rows share a deviation.
    chance = random.Random(f"{sorted(cell.levels.items())} {cell.seed}").gauss(0, 1)
    value = LOSS * (1 + 0.01 * cell.seed) * loss * math.exp(apart * chance)
    made = result(cell, (tensors, tensors, step, 0.0), 0.0, between, val_loss=value)
    return CellResult(cell=cell, wave=wave, result=made, curve=Curve())


def compared(*arguments: Any, **options: Any) -> Comparison:
    """The analysis of such a study."""
    return analyse(study(*arguments, **options))
