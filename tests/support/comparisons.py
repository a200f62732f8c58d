"""Comparisons that nobody measured, with known effects, for the tests of what reads them."""

import math
import random
from collections.abc import Mapping
from typing import Any

from assay.config import Run, load
from assay.optimizations import resolve_run
from assay.records.evidence import Evidence
from assay.records.prediction import Memory, MemoryOverStep, Predicted
from assay.records.run import Environment, RunResult
from assay.records.status import Status
from assay.records.study import AGAIN, BASELINE, Cell, CellResult, ComparisonRecord, Curve, Protocol, StudyEnding
from assay.records.timing import Block, Quartiles, Round
from assay.studies.drift import NUDGED
from support.designs import design

ENVIRONMENT = Environment(
    assay="0.1.0",
    torch="2.13.0+cpu",
    python="3.11.2",
    device="cpu",
    processor="Some Processor @ 2.1 GHz",
    cores=2,
    threads=2,
    memory_bytes=25 * 10**9,
    corpus_digest="0f" * 8,
)

TREATMENTS = (
    "sdpa_attention",
    "bf16_mixed",
    "activation_checkpointing",
    "gradient_accumulation:micro_batches=4",
    "sdpa_attention+bf16_mixed+activation_checkpointing",
)

LABELS = (
    *TREATMENTS[:3],
    "gradient_accumulation",
    "sdpa_attention + bf16_mixed + activation_checkpointing",
)
"""Their names for a reader."""

FACTORS: dict[str, tuple[float, float, float, float]] = {
    BASELINE: (1.0, 1.0, 1.0, 0.0),
    AGAIN: (1.0, 1.0, 1.0, 0.0),
    TREATMENTS[0]: (0.72, 0.78, 0.88, 1e-5),
    TREATMENTS[1]: (0.81, 0.93, 1.65, 2e-3),
    TREATMENTS[2]: (0.55, 0.66, 1.24, 0.0),
    TREATMENTS[3]: (0.41, 0.52, 1.05, 1e-5),
    TREATMENTS[4]: (0.49, 0.6, 1.002, 2e-3),
}
"""Tensor peak, process peak and step time against the baseline, and what is added to the loss."""

PROOFS = {
    "sdpa_attention": "4 of 4 attentions fused, no score matrix kept",
    "bf16_mixed": "49 of 49 matmuls in bfloat16",
    "activation_checkpointing": "4 of 4 blocks kept their input only, 33 matmuls ran again in backward",
    "gradient_accumulation": "the loss was computed 4 times, on 1536 targets in all",
}


def blocks(step: float, peak: float, rng: random.Random, *, count: int = 5, noise: float = 0.01) -> tuple[Block, ...]:
    """Timed blocks around a step time and a peak."""
    found = []
    for _ in range(count):
        median = step * math.exp(rng.gauss(0, noise))
        held = round(peak * math.exp(rng.gauss(0, noise / 20)))
        found.append(
            Block(steps=10, seconds=median * 10.1, median_step_seconds=median, tokens=15360, process_peak_bytes=held)
        )
    return tuple(found)


def result(
    cell: Cell,
    factors: tuple[float, float, float, float],
    noise: float = 0.01,
    between: float = 0.0,
    **changes: Any,
) -> RunResult:
    """One finished run; blocks deviate by `noise`, and processes by `between`."""
    rng = random.Random(f"{cell.name}{noise}")
    tensors, process, step, shift = factors
    step *= math.exp(between * random.Random(f"process {cell.name}{noise}").gauss(0, 1))
    timed = blocks(0.052 * step, 330e6 * process, rng, noise=noise)
    # A difference that was the same at every seed would have no interval.
    loss = 2.41 + 0.006 * cell.seed + shift * (1 + 0.05 * ((cell.seed + 1) % 3 - 1))
    peak = round(68_157_440 * tensors)
    values: dict[str, Any] = {
        "run": f"20261121-080000-{abs(hash(cell.treatment)) % 16**6:06x}-{cell.seed:04x}",
        "status": Status.DONE,
        "created": "2026-11-21T08:00:00+00:00",
        "identity": "0123456789ab",
        "config": cell.run,
        "steps": 60,
        "tokens": 92160,
        "parameters": 820_000,
        "train_loss": loss + 0.02,
        "val_loss": loss,
        "tokens_per_second": 1536 / timed[0].median_step_seconds,
        "step_seconds": Quartiles(median=0.052 * step, lower=0.051 * step, upper=0.054 * step, count=50),
        "memory": Memory(
            tensors_peak_bytes=peak, process_peak_bytes=max(block.process_peak_bytes or 0 for block in timed)
        ),
        "predicted": Predicted(
            tensors_peak_bytes=round(peak * 1.002), step_seconds=0.05 * step**1.2, memory=over_step(round(peak * 1.002))
        ),
        "evidence": tuple(
            Evidence(optimization=spec.name, observed=PROOFS.get(spec.name, "it did"), verdict=True)
            for spec in cell.run.optimizations
        ),
        "environment": ENVIRONMENT,
        "blocks": timed,
    }
    return RunResult(**{**values, **changes})


def over_step(peak: int) -> MemoryOverStep:
    """Memory of a step that is highest at the end of forward."""
    return MemoryOverStep(
        instants=("forward: aten.mm (blocks.0)", "forward: aten.mm (head)", "recompute: aten.mm", "update: AdamW"),
        layers={"weights": (peak // 4,) * 4, "saved for backward": (peak // 8, peak - peak // 4, peak // 8, 0)},
    )


def curve(cell: Cell, shift: float, steps: int = 60, pace: float = 0.05) -> Curve:
    """A loss that falls, in steps of about the same time after a long first one."""
    rng = random.Random(cell.seed)
    train = tuple(2.4 + 3.1 * math.exp(-step / 12) + rng.gauss(0, 0.05) + shift * step / steps for step in range(steps))
    seconds = tuple(pace * (9 if step == 0 else math.exp(rng.gauss(0, 0.03))) for step in range(steps))
    seen = ((steps, 2.41 + 0.006 * cell.seed + shift),)
    return Curve(train_loss=train, evaluations=seen, step_seconds=seconds, unsteady=(0,))


def record(
    *,
    seeds: int = 2,
    processes: int = 1,
    treatments: tuple[str, ...] = TREATMENTS,
    factors: Mapping[str, tuple[float, float, float, float]] = FACTORS,
    noise: float = 0.01,
    between: float = 0.0,
    changes: Mapping[str, dict[str, Any]] | None = None,
    base: Run | None = None,
    **fields: Any,
) -> ComparisonRecord:
    """A comparison in which each treatment has its factors; `changes` overwrites fields of a treatment's results."""
    base = (base or load("demo")).with_vocabulary()
    cells = design(base, treatments, seeds, processes)
    waves = list(dict.fromkeys((cell.seed, cell.process) for cell in cells))
    held = tuple(
        CellResult(
            cell=cell,
            wave=waves.index((cell.seed, cell.process)),
            result=result(cell, factors[cell.treatment], noise, between, **(changes or {}).get(cell.treatment, {})),
            curve=curve(cell, factors[cell.treatment][3], pace=0.052 * factors[cell.treatment][2]),
        )
        for cell in cells
    )
    rounds = tuple(
        Round(seed=wave[0], wave=at, number=number, order=tuple(c.name for c in cells if (c.seed, c.process) == wave))
        for at, wave in enumerate(waves)
        for number in range(5)
    )
    nudged = [cell.model_copy(update={"treatment": NUDGED}) for cell in cells if cell.treatment == BASELINE]
    values: dict[str, Any] = {
        "id": "20261121-080000-beef",
        "created": "2026-11-21T08:00:00+00:00",
        "title": "demo",
        "base": resolve_run(base),
        "seeds": tuple(range(base.seed, base.seed + seeds)),
        "treatments": treatments,
        "ending": StudyEnding.COMPLETE,
        "protocol": Protocol(
            blocks=5, processes=processes, resident=7, needed_bytes=3 * 10**9, available_bytes=20 * 10**9
        ),
        "cells": held,
        "rounds": rounds,
        "nudged": tuple(
            CellResult(cell=cell, wave=1, result=result(cell, FACTORS[BASELINE]), curve=curve(cell, 1e-6))
            for cell in nudged
        ),
    }
    return ComparisonRecord(**{**values, **fields})
