"""One row: the price of a first step, and when it is earned back."""

import pytest

from assay.analysis.comparison import analyse
from assay.analysis.effects import Effect
from assay.analysis.row import break_even
from assay.config.run import OwnRows
from assay.records.study import CellResult
from assay.records.timing import Quartiles
from support.comparisons import FACTORS, TREATMENTS, record

FASTER, SLOWER = TREATMENTS[0], TREATMENTS[1]


def test_the_price_over_the_seconds_saved_a_step() -> None:
    def quick(first: float, steady: float) -> dict[str, object]:
        return {
            "first_step_seconds": first,
            "step_seconds": Quartiles(median=steady, lower=steady, upper=steady, count=9),
        }

    (cell,) = record(seeds=1).of(FASTER)
    pairs = [
        (cell.result.model_copy(update=quick(0.3, 0.1)), cell.result.model_copy(update=quick(first, 0.06)))
        for first in (8.26, 3.0)
    ]
    # 8.26 − 0.06 − (0.3 − 0.1) seconds, at 0.04 seconds a step; the dearer of the two seeds counts.
    priced = break_even(pairs, 0.1, changed(-0.4, -0.5, -0.2))
    assert priced is not None
    assert priced.price_seconds == pytest.approx(8.0)
    assert priced.saved_seconds == pytest.approx(0.04)
    assert priced.steps in (200, 201)
    assert priced.interval in ((160, 400), (161, 401), (160, 401), (161, 400))
    assert priced.run_steps == cell.cell.run.training.steps
    for unsure in (changed(-0.4, -0.9, 0.1), changed(0.2, 0.1, 0.3), None, changed(-0.4, -0.4, -0.4, interval=False)):
        never = break_even(pairs, 0.1, unsure)
        assert never is not None
        assert (never.steps, never.interval, never.saved_seconds) == (None, None, None)
        assert never.price_seconds == priced.price_seconds
    assert break_even(pairs[1:], 0.3, changed(-0.3, -0.4, -0.2)) is None
    assert break_even([], 0.1, changed(-0.4, -0.5, -0.2)) is None


def changed(change: float, low: float, high: float, *, interval: bool = True) -> Effect:
    return Effect(change=change, interval=(low, high) if interval else None, pairs=3)


def test_a_row_has_it_where_its_first_step_is_longer() -> None:
    changes = {name: {"first_step_seconds": 9.0} for name in (FASTER, SLOWER)}
    changes |= {name: {"first_step_seconds": 0.1} for name in ("baseline", TREATMENTS[2])}
    found = {row.treatment: row.break_even for row in analyse(record(changes=changes)).rows}
    assert found[FASTER] is not None
    steady = 0.052 * (1 - FACTORS[FASTER][2])
    assert found[FASTER].steps == pytest.approx(8.9 / steady, rel=0.1)
    assert found[SLOWER] is not None
    assert found[SLOWER].steps is None
    assert found[TREATMENTS[2]] is None
    assert all(row.break_even is None for row in analyse(record()).rows)


def test_a_rate_has_the_targets_that_losses_of_a_users_own_counted() -> None:
    def counted(one: CellResult) -> CellResult:
        blocks = tuple(block.model_copy(update={"tokens": 288 * block.steps}) for block in one.result.speed.blocks)
        config = one.result.config.model_copy(update={"own_rows": OwnRows(targets=32, validation=False)})
        speed = one.result.speed.model_copy(update={"blocks": blocks})
        return one.model_copy(update={"result": one.result.model_copy(update={"config": config, "speed": speed})})

    plain = record(treatments=TREATMENTS[:1])
    for given, targets in (
        (plain, plain.base.tokens_per_step),
        (plain.model_copy(update={"cells": tuple(map(counted, plain.cells))}), 288),
    ):
        for row in analyse(given).rows:
            rate, step = row.metrics["tokens_per_second"], row.metrics["step_seconds"]
            assert isinstance(rate, float)
            assert isinstance(step, float)
            assert rate * step == pytest.approx(targets)
