"""Intervals of effects over simulated studies: how often they are wrong, and how often they find an interaction."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from assay.analysis.comparison import analyse
from assay.analysis.factors.additivity import deviations, grids
from assay.analysis.factors.changes import Model, ProcessChanges, Scale, SeedChanges, factor_effects, model
from assay.analysis.factors.layout import FactorLayout, FactorLevels
from assay.analysis.intervals import Design, critical_value
from assay.records.study import BASELINE
from support.factorials import factorial, study

DRAWS = 1000
FACTORS = (FactorLevels("a", ("0", "1", "2")), FactorLevels("b", ("0", "1")), FactorLevels("c", ("0", "1")))
BLOCKS = 3
DEVIATION = 0.02
MOST = 0.05 + 3 * np.sqrt(0.05 * 0.95 / DRAWS)
"""Nominal rate, and three standard errors of a rate over the draws."""


def levels() -> FactorLayout:
    rows = [tuple(row.values()) for row in factorial({one.key: one.levels for one in FACTORS})]
    return FactorLayout(FACTORS, {BASELINE: rows[0], **{f"row {at}": row for at, row in enumerate(rows[1:], 1)}})


def simulated(means: np.ndarray, seed: int) -> tuple[ProcessChanges, Model]:
    """Studies with these log means, the control twice in every block."""
    count = len(means)
    rows = [0, 0, *range(1, count)] * BLOCKS
    design = Design(rows, np.repeat(np.arange(BLOCKS), count + 1))
    chance = np.random.default_rng(seed)
    values = means[rows] + chance.normal(0, DEVIATION, (DRAWS, len(rows)))
    names = tuple(levels().rows)[1:]
    changes = ProcessChanges(names, design.differences(values), design.fit(values).covariance)
    found = model(levels(), names, changes.covariance)
    assert found is not None
    return changes, found


def sums(each: dict[tuple[int, str], float]) -> np.ndarray:
    """The sum of each row's own effects."""
    return np.array([sum(each.get(one, 0.0) for one in enumerate(row)) for row in levels().rows.values()])


OWN = {(0, "1"): 0.6, (0, "2"): 1.1, (1, "1"): -0.4, (2, "1"): 0.3}


@pytest.mark.parametrize("scale", list(Scale))
def test_changes_that_add_up_have_interactions_at_no_more_than_the_nominal_rate(scale: Scale) -> None:
    means = sums(OWN) if scale is Scale.RATIO else np.log1p(sums(OWN))
    changes, found = simulated(means, seed=1)
    some = [at for at, term in enumerate(found.terms) if len(term.changes) > 1]
    values, half = changes.contrasts(found.weights[some], scale, len(some))
    wrong = (np.abs(values) > half).any(axis=-1).mean()
    # Rows that deviate more by chance have wider intervals, so the rate is below the nominal one.
    assert 0.01 < wrong <= MOST


def test_all_intervals_hold_together_on_both_scales() -> None:
    means = sums(OWN) + np.random.default_rng(7).normal(0, 0.2, 12)
    changes, found = simulated(means, seed=2)
    for scale in Scale:
        whole = means[1:] - means[0]
        true = found.weights @ (whole if scale is Scale.RATIO else np.expm1(whole))
        values, half = changes.contrasts(found.weights, scale, len(found.terms))
        assert (np.abs(values - true) > half).any(axis=-1).mean() <= MOST


def test_an_interaction_of_three_standard_errors_is_found_as_often_as_theory_says() -> None:
    _, found = simulated(np.zeros(12), seed=3)
    at = next(at for at, term in enumerate(found.terms) if term.changes == (("a", "2"), ("b", "1")))
    covariance = simulated(np.zeros(12), seed=3)[0].covariance
    error = DEVIATION * np.sqrt(found.weights[at] @ covariance @ found.weights[at])
    # The interaction is the same at both levels of c, so no other effect has it.
    planted = np.array([row[0] == "2" and row[1] == "1" for row in levels().rows.values()])
    changes, found = simulated(sums(OWN) + 3 * error * planted, seed=4)
    # Theory is of the pooled deviation, and not of rows that are judged by their own.
    pooled = replace(changes, found=replace(changes.found, apart=np.zeros_like(changes.found.apart)))
    family = len(found.terms)
    values, half = pooled.contrasts(found.weights, Scale.RATIO, family)
    rate = (np.abs(values[:, at]) > half[:, at]).mean()
    degrees = int(np.median(changes.found.pooled_degrees))
    factor = critical_value(family, 0.0, degrees)
    distribution = stats.nct(degrees, 3.0)
    power = distribution.sf(factor) + distribution.cdf(-factor)
    assert rate == pytest.approx(power, abs=3 * np.sqrt(power * (1 - power) / DRAWS))


def with_one_wild_row(times: float) -> ProcessChanges:
    """Studies of nine rows without any effect, of which the third deviates this many times as much as the others."""
    rows = np.array([0, 0, *range(1, 10)] * BLOCKS)
    design = Design(rows, np.repeat(np.arange(BLOCKS), 11))
    spread = DEVIATION * np.where(rows == 3, times, 1.0)
    values = np.random.default_rng(6).normal(0, spread, (DRAWS, len(rows)))
    return ProcessChanges(tuple("abcdefghi"), design.differences(values), design.fit(values).covariance)


STACK = np.array([[-1.0, -1.0, 1.0, 0, 0, 0, 0, 0, 0]])
"""Deviation of the third row from the sum of the first two."""


@pytest.mark.parametrize("times", [1, 4, 10])
@pytest.mark.parametrize("scale", list(Scale))
def test_figures_computed_from_a_disturbed_row_are_wrong_no_more_often_than_the_table(scale: Scale, times: int) -> None:
    """With the deviation pooled over all rows, a third of the studies would be wrong at ten times the deviation."""
    changes = with_one_wild_row(times)
    values, half = changes.contrasts(STACK, scale, 1)
    assert (np.abs(values) > half).mean() <= max(MOST, changes.found.differs.any(axis=-1).mean())


def test_a_row_as_a_contrast_has_the_bracket_of_the_table_and_a_sum_with_it_a_wider_error() -> None:
    changes = with_one_wild_row(10)
    apart = changes.found.apart[:, 2]
    assert apart.mean() > 0.8
    half = changes.contrasts(np.eye(9), Scale.RATIO, 9).half_widths
    assert half[apart, 2] == pytest.approx(changes.found.half_width[apart, 2])
    whole = changes.contrasts(STACK, Scale.RATIO, 1).half_widths[:, 0]
    alone = changes.contrasts(np.eye(9), Scale.RATIO, 1).half_widths[:, 2]
    dominated = apart & (changes.found.error[:, 2] > 0.1)
    assert (whole[dominated] > alone[dominated]).all()


def test_losses_whose_deviations_are_unequal_keep_the_nominal_rate() -> None:
    chance = np.random.default_rng(5)
    names = tuple(levels().rows)[1:]
    found = model(levels(), names, np.eye(11))
    assert found is not None
    some = np.array([len(term.changes) > 1 for term in found.terms])
    wrong = 0
    for _ in range(300):
        # Rows deviate from seed to seed by 0 to 5 %, and the seed itself moves all of them.
        own = chance.normal(size=(4, 11)) * np.linspace(0, 0.05, 11) + chance.normal(0, 0.02, (4, 1))
        figures = 2.5 * np.exp(own + sums(OWN)[1:])
        values, half = SeedChanges(names, 2.5 * np.exp(chance.normal(0, 1e-9, 4)), figures, True).contrasts(
            found.weights[some], Scale.RATIO, int(some.sum())
        )
        wrong += bool((np.abs(values) > half).any())
    assert wrong / 300 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)


def test_the_order_of_cells_changes_nothing() -> None:
    def figures(row: Any) -> tuple[float, float, float]:
        size = 1.0 + int(row["a"]) + 2 * int(row["b"])
        return size, size, 1 + 0.1 * size

    record = study(factorial({"a": ("0", "1", "2"), "b": ("0", "1")}), figures, between=0.02, apart=0.01)
    shuffled = list(record.cells)
    random.Random(3).shuffle(shuffled)
    one, other = analyse(record), analyse(record.model_copy(update={"cells": tuple(shuffled)}))
    for analysis in (factor_effects, deviations, grids):
        assert analysis(one)
        assert analysis(one) == analysis(other)
