"""Every pair: predicted or refused whatever the order of listing; and drawn ones trained, measured and proven.

Applying all pairs is marked `slow`; a run of the suite applies a sample, the same one every time.
"""

import random
from contextlib import suppress
from functools import cache
from itertools import combinations
from typing import Any

import pytest

from assay.config import Run
from assay.errors import UsageError
from assay.estimator import estimate
from assay.hardware import Machine, detect
from assay.optimizations import Numerics, Unpredicted, catalogue, check, optimizations_of, resolve
from assay.records.trace import Trace
from support.runs import ON_ONE_DEVICE, marked, run_with, specs_of
from support.steps import observed, plain

MACHINE = Machine(processor="any", cores=2, memory_bytes=2**34)
DRAWN, STEPS = 40, 3


def _accepted(names: tuple[str, ...]) -> bool:
    try:
        check(run_with(*specs_of(names)), detect())
    except UsageError:
        return False
    return True


NAMES = list(catalogue())
TOGETHER = [pair for pair in combinations(ON_ONE_DEVICE, 2) if _accepted(pair)]
QUICK = [pair for pair in TOGETHER if not marked(*pair)]
SAMPLE = random.Random(0).sample(QUICK, min(DRAWN, len(QUICK)))
APPLIED = [pytest.param(pair, id="+".join(pair), marks=() if pair in SAMPLE else pytest.mark.slow) for pair in TOGETHER]


@pytest.mark.parametrize("later", range(1, len(NAMES)), ids=NAMES[:-1])
def test_the_order_of_listing_does_not_matter_to_what_is_predicted(later: int) -> None:
    """Refused both ways, or one and the same run, which is predicted or refused."""
    for names in ((NAMES[later - 1], other) for other in NAMES[later:]):
        for ranks in (1,) if set(names) <= set(ON_ONE_DEVICE) else (2, 4):
            run = _listed(names, ranks)
            assert run == _listed((names[1], names[0]), ranks), names
            if isinstance(run, Run):
                with suppress(UsageError):
                    assert estimate(run, MACHINE).to_dict(), names


def _listed(names: tuple[str, str], ranks: int = 1) -> Run | type[UsageError]:
    try:
        return run_with(*specs_of(names), ranks=ranks)
    except UsageError as refusal:
        return type(refusal)


@pytest.mark.parametrize("names", APPLIED)
def test_applied_together_both_are_proven_and_what_is_held_is_predicted_exactly(names: tuple[str, str]) -> None:
    run = run_with(*specs_of(names))
    (_, trace), known = _observed(names), _known(run)
    for optimization in optimizations_of(run):
        evidence = optimization.verify(trace, run)
        assert evidence.verdict, evidence.observed
    if known is not None:
        assert trace.memory.saved_total_bytes == known["saved_bytes"]
        assert trace.memory.parameter_bytes == known["parameter_bytes"]
        assert trace.memory.optimizer_state_bytes == known["optimizer_state_bytes"]


def _known(run: Run) -> dict[str, Any] | None:
    """The estimate of a run; None where one of its techniques has no arithmetic."""
    try:
        return estimate(run, MACHINE).to_dict()
    except Unpredicted:
        return None


@pytest.mark.parametrize("names", APPLIED)
def test_the_loss_keeps_to_the_looser_of_both_numerics(names: tuple[str, str]) -> None:
    found, _ = _observed(names)
    assert len(found) == STEPS
    promised = {resolve(spec).promised for spec in specs_of(names)}
    if Numerics.DIFFERENT_TRAINING not in promised:
        tolerance = 2e-2 if Numerics.LOSSY in promised else 1e-5
        assert found == pytest.approx(plain(run_with())[0][:STEPS], rel=tolerance)


@cache
def _observed(names: tuple[str, str]) -> tuple[list[float], Trace]:
    """Losses and a trace of a pair, trained once: listed in the other order it is the same run."""
    return observed(run_with(*specs_of(names)), STEPS)
