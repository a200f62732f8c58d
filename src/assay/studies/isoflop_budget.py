"""A design that ends in time: the largest held-out run whose study fits into the hours that are given.

Everything follows from the compute C of the held-out run. Budgets lie evenly in log C, from C/10 down over one and a
half decades. At each, the sizes nearest in log N to `tokens_per_parameter` train, as far as they have enough steps. The
run that is held out has the size that is nearest at its own compute.

Cells run beside each other, each as soon as a slot is free, in the order of the study. The time of a study is therefore
that of a list schedule. Decay branches follow their trunk in one slot, without the steps that it has done. Computes are
tried over a wide range, because neither a small nor a large C need be possible.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from assay.config.run import ResolvedRun
from assay.errors import UsageError
from assay.studies.execution.deadline import process_seconds
from assay.studies.isoflop_sizes import Count, counts, tokens_for
from assay.studies.kinds.isoflop import (
    AS_RULED,
    BUDGET,
    HELD_OUT_TIMES,
    LEAST_STEPS,
    RATE,
    WIDTH,
    HeldOutRun,
    Isoflop,
)

TOKENS_PER_PARAMETER = 60.0
"""Middle of the sizes of a budget. Hoffmann et al. 2022 have 20 for words; single bytes say less each, so more are
needed."""
SEEDS = 3
"""Seeds of a fitted run. A prediction for ten times the compute multiplies the scatter of single losses."""
BUDGETS, SIZES, DECADES = 7, 5, 1.5
"""Budgets, sizes of each, and powers of ten between the smallest and the largest budget."""
_LEAST_BUDGETS, _LEAST_SIZES = 3, 3
_FARTHEST = math.log(3.5)
"""Farthest size or number of tokens from the wanted ones, in log N; tokens per parameter then differ by 12 times.

Larger models have only begun to learn within a budget, and do not follow a law of N and D yet.
"""
_LEAST_FLOPS, _MOST_FLOPS = 1e7, 1e25
_PLACES, _PLACES_BETWEEN = 190, 12
"""Computes of the held-out run that are tried over the whole range, and then up to the next one."""
MOST_EPOCHS = 4.0
"""Repeated text is nearly as good as new text up to so many passes (Muennighoff et al. 2023)."""


@dataclass(frozen=True)
class DesignLimits:
    """Limits of a design: its time, the machine, and the text."""

    seconds: float
    slots: int
    """Cells that run beside each other."""
    step_seconds: Mapping[int, float]
    """Predicted seconds of a step of each width, on one thread."""
    most_tokens: float = math.inf
    """Tokens on which a run may train: some passes over the text."""


@dataclass(frozen=True)
class Wanted:
    """Aims of a design: its sizes, and how much data each gets."""

    sizes: Mapping[int, ResolvedRun]
    """The base at each width."""
    tokens_per_parameter: float = TOKENS_PER_PARAMETER
    count: Count = "total"
    seeds: int = SEEDS
    branches: bool = False
    """Whether the runs of a size are decay branches of the longest one."""

    @cached_property
    def parameters(self) -> dict[int, int]:
        """N of each width."""
        return {width: counts(run.model)[self.count] for width, run in self.sizes.items()}

    def nearest(self, flops: float, most_tokens: float) -> list[int]:
        """Return the widths whose runs are neither too short nor too long, the nearest to the wanted ratio first.

        Sizes whose tokens per parameter are far from the wanted ones are left out.
        """
        tokens = {width: tokens_for(flops, size) for width, size in self.parameters.items()}
        able = [
            width
            for width, run in self.sizes.items()
            if LEAST_STEPS * run.tokens_per_step <= tokens[width] <= most_tokens
        ]
        best = math.sqrt(tokens_for(flops, 1.0) * self.tokens_per_parameter)
        apart = {width: abs(math.log(tokens[width] / best)) for width in able}
        return sorted((width for width in able if apart[width] <= _FARTHEST), key=apart.__getitem__)


def makespan(seconds: Sequence[float], slots: int) -> float:
    """Return the end of the last of several tasks, of which each begins when a slot is free."""
    free = [0.0] * max(1, slots)
    for one in seconds:
        heapq.heappush(free, heapq.heappop(free) + one)
    return max(free)


def study_for(flops: float, wanted: Wanted, most_tokens: float) -> Isoflop | None:
    """Return the study whose held-out run has at most so many FLOPs; None if too few runs are possible."""
    each = DECADES / (BUDGETS - 1)
    budgets = [_short(flops / HELD_OUT_TIMES / 10 ** (each * number)) for number in reversed(range(BUDGETS))]
    nearest = {budget: wanted.nearest(float(budget), most_tokens)[:SIZES] for budget in budgets}
    runs = {budget: tuple(sorted(widths)) for budget, widths in nearest.items() if len(widths) >= _LEAST_SIZES}
    largest = HELD_OUT_TIMES * float(budgets[-1])
    widest = wanted.nearest(largest, most_tokens)
    if budgets[-1] not in runs or len(runs) < _LEAST_BUDGETS or not widest:
        return None
    held_out = HeldOutRun(flops=largest, width=widest[0])
    return Isoflop(
        runs=runs,
        held_out=held_out,
        check_rate_at=list(runs)[1],
        count=wanted.count,
        seeds=wanted.seeds,
        branches=wanted.branches,
    )


def largest_study(wanted: Wanted, limits: DesignLimits) -> Isoflop:
    """Return the study with the largest held-out run that ends in time. Raises `UsageError` if none does."""
    coarse = np.geomspace(_LEAST_FLOPS, _MOST_FLOPS, _PLACES)
    able = [flops for flops in coarse if _in_time(flops, wanted, limits) is not None]
    if not able:
        raise UsageError(
            f"no study of scaling ends in {limits.seconds / 60:.3g} minutes here; give a longer --budget, fewer "
            "--seeds, a smaller model, a smaller batch, or more text"
        )
    fine = np.geomspace(able[-1], able[-1] * coarse[1] / coarse[0], _PLACES_BETWEEN)
    return next(found for flops in reversed(fine) if (found := _in_time(flops, wanted, limits)) is not None)


def _in_time(flops: float, wanted: Wanted, limits: DesignLimits) -> Isoflop | None:
    """Return the study of a held-out run; None if it is not possible or ends too late."""
    study = study_for(flops, wanted, limits.most_tokens)
    return study if study is not None and study_seconds(study, wanted, limits) <= limits.seconds else None


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study before it begins."""

    levels: Mapping[str, str]
    seed: int
    """Index of its seed."""
    steps: int
    shared: int
    """Steps that its trunk does for it; 0 if it trains all of them itself."""
    seconds: float
    """Predicted time of its process, without these steps."""
    saved_seconds: float
    """Predicted time of these steps."""


def study_seconds(study: Isoflop, wanted: Wanted, limits: DesignLimits) -> float:
    """Return the predicted time of a study: all waves in their order, each with a trunk and its branches."""
    every = runs_of(study, wanted, limits)
    # The control's second run trains all of its steps, and comes before the trunk of its width.
    waves = {(one.seed, number): one.seconds for number, one in enumerate(every) if not one.shared}
    trunks = {
        (one.seed, one.levels[WIDTH]): number
        for number, one in enumerate(every)
        if not one.shared and one.levels[RATE] == AS_RULED and one.levels[BUDGET] in study.runs
    }
    for one in every:
        if one.shared:
            waves[one.seed, trunks[one.seed, one.levels[WIDTH]]] += one.seconds
    return makespan(list(waves.values()), limits.slots)


def runs_of(study: Isoflop, wanted: Wanted, limits: DesignLimits) -> list[PlannedRun]:
    """Return every run of a study in their order: at each seed the control twice, and the held-out run once."""
    control, held_out, *others = (_planned(study, one, wanted, limits) for one in study.combinations())
    again = _planned(study, control.levels, wanted, limits, whole=True)
    first = [control, again, held_out, *others]
    later = ([control, again, *others] for _ in range(1, study.seeds))
    return [replace(one, seed=seed) for seed, every in enumerate([first, *later]) for one in every]


def _planned(
    study: Isoflop, levels: Mapping[str, str], wanted: Wanted, limits: DesignLimits, *, whole: bool = False
) -> PlannedRun:
    """Return one run of a study at the first seed; a `whole` one trains all of its steps itself."""
    width = int(levels[WIDTH])
    size, each = wanted.sizes[width], limits.step_seconds[width]
    steps, shared = study.steps(size, levels[BUDGET]), 0 if whole else study.branch_step(size, levels)
    training = size.training.model_copy(update={"steps": steps})
    run = size.model_copy(update={"training": training})
    seconds = process_seconds(run, each, training.eval_batches or 0, shared)
    return PlannedRun(levels, 0, steps, shared, seconds, each * shared)


def _short(flops: float) -> str:
    """Return a budget with two digits, rounded down, such as ``3.1e12``."""
    power = math.floor(math.log10(flops))
    return f"{math.floor(flops / 10 ** (power - 1) + 1e-9) / 10:g}e{power}"
