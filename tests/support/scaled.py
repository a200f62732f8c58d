"""Studies of scaling that nobody ran, whose losses follow a known law."""

import math
import random
from collections.abc import Mapping
from functools import cache
from typing import Any

from assay.config import Run, load
from assay.records.run import Branch
from assay.records.study import AGAIN, Cell, CellResult, ComparisonRecord, Curve, Protocol
from assay.scaling.laws.hoffmann import HOFFMANN
from assay.studies.isoflop_sizes import counts
from assay.studies.kinds.isoflop import RATE, RATES, HeldOutRun, Isoflop
from support.comparisons import record, result

LAW = HOFFMANN.of(0.9, 30.0, 60.0, 0.35, 0.32)
SMALL = (
    "model.n_layer=3",
    "model.n_embd=64",
    "model.n_head=8",
    "model.context_length=16",
    "training.batch_size=4",
    "training.steps=100",
    "training.warmup_steps=5",
)
"""A base of 64 tokens a step."""
STUDY = Isoflop(
    runs={f"{flops:g}": (16, 24, 32, 40, 48) for flops in (1e10, 2e10, 4e10, 8e10, 1.6e11, 3.2e11)},
    held_out=HeldOutRun(flops=3.2e12, width=64),
    check_rate_at="2e+10",
)


BRANCHED = STUDY.model_copy(update={"branches": True, "step_seconds": {16: 0.5}})
"""The same with decay branches, of which the steps of one width have a predicted time."""


def base(*overrides: str) -> Run:
    """The base of the study."""
    return load("demo", [*SMALL, *overrides])


@cache
def _cells(branches: bool) -> tuple[Cell, ...]:
    return (BRANCHED if branches else STUDY).cells(base())


def scaled_record(
    noise: float = 0.002, changes: Mapping[str, Any] | None = None, *, branches: bool = False, **fields: Any
) -> ComparisonRecord:
    """A study whose runs have the law's loss, with some noise; other rates cost a tenth of a nat for each factor."""
    chance, cells = random.Random(0), []
    deviations: dict[str, float] = {}
    for wave, cell in enumerate(_cells(branches)):
        run = cell.run
        tokens = run.training.steps * run.tokens_per_step
        exact = float(LAW.loss(counts(run.model)["total"], tokens))
        same = "baseline" if cell.treatment == AGAIN else cell.treatment
        deviation = deviations.setdefault(same, math.exp(chance.gauss(0, noise)))
        loss = exact * deviation + 0.1 * abs(math.log2(RATES[cell.levels[RATE]]))
        figures: dict[str, Any] = {"steps": run.training.steps, "tokens": tokens, "val_loss": loss, "val_targets": 900}
        figures |= {"val_split_targets": 1000, "val_standard_error": 0.01, "epoch_seconds": 100.0, "blocks": ()}
        if cell.branch is not None:
            figures["branch"] = Branch(run=f"run-{wave}", step=cell.branch.step)
        made = result(cell, (1.0, 1.0, 1.0, 0.0), **{**figures, **(changes or {}).get(cell.treatment, {})})
        curve = Curve(train_loss=tuple(loss + 3 / (1 + step) for step in range(30)))
        if cell.run.training.keep_steps:
            curve = curve.model_copy(update={"step_seconds": (0.25,) * run.training.steps})
        cells.append(CellResult(cell=cell, wave=wave, result=made, curve=curve))
    values: dict[str, Any] = {
        "seeds": (0,),
        "treatments": tuple(one.cell.treatment for one in cells[2:]),
        "protocol": Protocol(blocks=0, resident=1, available_bytes=10**9),
        "cells": tuple(cells),
        "kind": "isoflop",
        "name": "toy",
        "question": "Does it predict?",
        "nudged": (),
        "rounds": (),
    }
    return record(treatments=("sdpa_attention",), seeds=1).model_copy(update={**values, **fields})
