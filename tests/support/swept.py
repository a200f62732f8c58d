"""Records of factorial studies that nobody ran, with figures given by a function of the levels."""

import random
from collections.abc import Callable, Mapping
from typing import Any

from assay.config import load
from assay.records.status import Status
from assay.records.study import AGAIN, BASELINE, CellResult, ComparisonRecord, Curve, StudyEnding
from assay.studies.kinds.factorial import Factorial
from support.comparisons import TREATMENTS, record, result

Figures = tuple[float, float, float | None]
"""Factors of memory and of step time, and the validation loss; None if the run diverged."""


def factorial_record(
    vary: Mapping[str, Any],
    figures: Callable[[Mapping[str, str]], Figures],
    *,
    seeds: int = 3,
    noise: float = 0.002,
    **fields: Any,
) -> ComparisonRecord:
    """A factorial study; the losses of rows deviate from each other by `noise` at each seed."""
    base = load("demo").with_vocabulary()
    study = Factorial(vary=dict(vary), seeds=seeds, processes=1)
    cells = []
    for cell in study.cells(base):
        memory, step, loss = figures(cell.levels)
        name = "baseline" if cell.treatment == AGAIN else cell.treatment
        shift = random.Random(f"{name} {cell.seed}").gauss(0, noise)
        changes: dict[str, Any] = {"val_loss": None, "status": Status.DIVERGED, "reason": "loss is not finite"}
        if loss is not None:
            changes = {"val_loss": loss + shift + 0.006 * cell.seed}
        run = result(cell, (memory, memory, step, 0.0), **changes)
        cells.append(CellResult(cell=cell, wave=cell.seed, result=run, curve=Curve()))
    rows = tuple(dict.fromkeys(one.cell.treatment for one in cells if not one.cell.treatment.startswith("baseline")))
    whole = record(seeds=seeds, treatments=TREATMENTS[:1])
    values = {
        "treatments": rows,
        "cells": tuple(cells),
        "rounds": (),
        "nudged": (),
        "kind": "factorial",
        "context": study.context,
        **fields,
    }
    return ComparisonRecord(**{name: getattr(whole, name) for name in ComparisonRecord.model_fields} | values)


def cut_short(whole: ComparisonRecord, *kept: tuple[str, int]) -> ComparisonRecord:
    """The record as a limit of time leaves it: with the controls of some seeds, and rows at these seeds."""
    seeds = {seed for _, seed in kept}
    controls = (BASELINE, AGAIN)
    cells = [
        one
        for one in whole.cells
        if (one.cell.treatment in controls and one.cell.seed in seeds) or (one.cell.treatment, one.cell.seed) in kept
    ]
    left = tuple(one.cell for one in whole.cells if one not in cells)
    ending = StudyEnding.BUDGET_REACHED
    return whole.model_copy(update={"cells": tuple(cells), "held_back": left, "ending": ending})


def in_two_sizes(**fields: Any) -> ComparisonRecord:
    """A study of two optimizations with the size as context: the small model is the lightest and fastest of all."""
    at = {"none": (1.0, 1.0), "sdpa_attention": (0.8, 1.1), "bf16_mixed": (0.9, 0.7)}

    def figures(levels: Mapping[str, str]) -> Figures:
        memory, step = at[levels["optimizations"]]
        return (0.2 * memory, 0.2 * step, 2.4) if levels["shape"] == "small" else (memory, step, 2.4)

    vary = {"shape": {"role": "context", "levels": {"large": {}, "small": {"model.n_layer": 2}}}}
    return factorial_record({**vary, "optimizations": [*at]}, figures, noise=0.0, **fields)


def recipe_parts() -> ComparisonRecord:
    """Return a fractional study without times, of two parts that lower the loss and of one that raises it."""

    def of(levels: Mapping[str, str]) -> Figures:
        helps = {"lion": 0.2, "64": 0.1, "16": -0.1}
        return 1, 1, 3 - sum(helps.get(level, 0.0) for level in levels.values())

    vary = {"optimizations": ["none", "lion"], "model.n_embd": [32, 64], "training.batch_size": [8, 16]}
    found = factorial_record(vary, of)
    untimed = found.protocol.model_copy(update={"blocks": 0})
    return found.model_copy(update={"kind": "fractional", "protocol": untimed})
