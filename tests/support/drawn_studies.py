"""Studies that are drawn from a seed: kinds, seeds, figures, losses, endings, and what a study may state."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from assay.records.prediction import Memory
from assay.records.status import Status
from assay.records.study import ComparisonRecord, Expectation, Halving, StudyEnding
from support.comparisons import FACTORS, TREATMENTS, record
from support.factorials import factorial, study
from support.swept import Figures, cut_short, factorial_record

_STACKS = (
    *("lion", "sgd:momentum=0.9", "sgd:momentum=0", "gradient_accumulation:micro_batches=4", "a level of its own"),
    *("placebo: gradient scaler", "placebo: accumulation", "sdpa_attention+bf16_mixed+activation_checkpointing"),
    "sdpa_attention+bf16_mixed+activation_checkpointing+gradient_accumulation:micro_batches=4+lion",
)
_FACTORS: Mapping[str, Sequence[str]] = {
    "training.batch_size": ("8", "16", "32", "64"),
    "training.steps": ("20", "100"),
    "model.norm_position": ("pre", "post"),
    "shape": ("default", "context x2", "layers x2", "mixed precision, batch 28"),
    "warm-up": ("with", "without"),
}
_LOST = (Status.DIVERGED, Status.OUT_OF_MEMORY, Status.FAILED, Status.TIMED_OUT, Status.KILLED, Status.INTERRUPTED)
_CHANGES = (0.0004, 0.2, 0.5, 0.93, 0.999, 1.0, 1.004, 1.3, 2.0, 2.6, 18.0)
"""Factors of memory and times."""


def drawn_study(seed: int) -> ComparisonRecord:
    """A study from a seed."""
    rng = random.Random(seed)
    kinds: Sequence[Callable[[random.Random], ComparisonRecord]] = (_comparison, _factorial, _factorial, _rates)
    made = _stated(rng.choice(kinds)(rng), rng)
    if rng.random() < 0.3:
        made = made.model_copy(update={"protocol": made.protocol.model_copy(update={"blocks": 0})})
    return made if rng.random() < 0.8 else _cut(made, rng)


def _comparison(rng: random.Random) -> ComparisonRecord:
    kept = rng.sample(TREATMENTS, rng.randint(1, len(TREATMENTS)))
    figures = {
        one: (_size(rng), _size(rng), _size(rng), rng.choice((0.0, 1e-5, 2e-3, 0.3, -0.3))) for one in TREATMENTS
    }
    return record(
        seeds=rng.choice((1, 2, 3)),
        treatments=tuple(kept),
        factors={**FACTORS, **figures},
        noise=rng.choice((0.001, 0.01, 0.5)),
        changes={one: _lost(rng) for one in kept if rng.random() < 0.2},
        target_loss=rng.choice((None, None, 3.0, 2.4123, 0.1)),
    )


def _factorial(rng: random.Random) -> ComparisonRecord:
    keys = rng.sample([*_FACTORS], rng.randint(0, 2))
    factors = {key: list(_FACTORS[key][: rng.randint(2, 3)]) for key in keys}
    if not keys or rng.random() < 0.7:
        factors["optimizations"] = ["none", *rng.sample(_STACKS, rng.randint(1, 4))]
    sizes = {
        level: (_size(rng), _size(rng), rng.choice((1.0, 1.0, 0.9, 1.2))) for some in factors.values() for level in some
    }

    def figures(levels: Mapping[str, str]) -> tuple[float, float, float]:
        memory, time, loss = 1.0, 1.0, 1.0
        for key, level in levels.items():
            if level != factors[key][0]:
                memory, time, loss = memory * sizes[level][0], time * sizes[level][1], loss * sizes[level][2]
        return memory, time, loss

    whole = study(
        factorial(factors),
        figures,
        seeds=rng.choice((1, 3)),
        between=rng.choice((0.0, 0.01, 0.8)),
        apart=rng.choice((0.0, 0.001, 0.1)),
        context=(keys[0],) if len(factors) > 1 and keys and rng.random() < 0.4 else (),
        name="drawn",
    )
    lost = {one: _lost(rng) for one in whole.treatments if rng.random() < 0.1}
    cells = [
        one.model_copy(update={"result": one.result.model_copy(update=lost.get(one.cell.treatment, {}))})
        for one in whole.cells
    ]
    return whole.model_copy(update={"cells": tuple(cells)})


def _rates(rng: random.Random) -> ComparisonRecord:
    best = {batch: rng.choice((3e-4, 1e-3, 3e-3)) for batch in ("8", "16", "32", "64")}

    def figures(levels: Mapping[str, str]) -> Figures:
        rate = float(levels["training.learning_rate"])
        loss = 2.3 + 0.1 * abs(rate / best[levels.get("training.batch_size", "8")] - 1)
        return 1.0, 1.0, None if rate > 1e-2 else loss

    vary: dict[str, Any] = {"training.learning_rate": [1e-3, 3e-4, 3e-3, 3e-2]}
    if batches := rng.choice((0, 2, 3, 4)):
        vary["training.batch_size"] = [int(one) for one in [*best][:batches]]
    made = factorial_record(vary, figures, seeds=rng.choice((1, 3)), noise=0.002, name="drawn")
    if rng.random() < 0.5:
        return made
    rows = rng.sample(made.treatments, 3)
    return made.model_copy(update={"halving": Halving(rungs=(tuple(rows), tuple(rows[:2])), kept=(2, 1))})


def _stated(made: ComparisonRecord, rng: random.Random) -> ComparisonRecord:
    """The study with expectations, or without."""
    changes = ("lower", "higher", "none")
    expects = tuple(
        Expectation(
            row=row, metric=rng.choice(("tensors_peak_bytes", "val_loss")), change=rng.choice(changes), size=0.2
        )
        for row in rng.sample(made.treatments, min(len(made.treatments), rng.randint(0, 4)))
    )
    return made.model_copy(update={"expects": expects})


def _cut(made: ComparisonRecord, rng: random.Random) -> ComparisonRecord:
    some = rng.sample(made.treatments, rng.randint(0, len(made.treatments)))
    cut = cut_short(made, *((row, made.seeds[0]) for row in some))
    return cut.model_copy(update={"ending": rng.choice((StudyEnding.BUDGET_REACHED, StudyEnding.INTERRUPTED))})


def _size(rng: random.Random) -> float:
    return rng.choice(_CHANGES)


def _lost(rng: random.Random) -> dict[str, Any]:
    lost = {"val_loss": None, "train_loss": None, "step_seconds": None, "blocks": (), "memory": Memory()}
    return {"status": rng.choice(_LOST), "reason": "lost", **lost}
