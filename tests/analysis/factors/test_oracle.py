"""Effects, interactions and their errors against statsmodels' least squares, which the package itself never imports."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from statsmodels.regression.linear_model import OLS

from assay.analysis.comparison import analyse
from assay.analysis.factors.changes import Model, ProcessChanges, Scale, factor_effects, model, row_changes
from assay.analysis.factors.layout import Change, layout
from assay.analysis.intervals import critical_value
from assay.analysis.metrics import metrics
from assay.records.status import Status
from assay.records.study import AGAIN, BASELINE, ComparisonRecord
from assay.studies.kinds.fractional import Fractional, aliases, best_generators, defining_words
from support.factorials import compared, factorial, study

FACTORS = {"model.n_layer": ("2", "4", "8"), "training.batch_size": ("8", "16"), "optimizations": ("none", "lion")}
SIZES = {"4": 1.7, "8": 3.1, "16": 1.9, "lion": 0.8}


def figures(levels: Any) -> tuple[float, float, float]:
    """Multiplied sizes, with an interaction."""
    size = float(np.prod([SIZES.get(level, 1.0) for level in levels.values()]))
    return size, size * (1.2 if levels["optimizations"] == "lion" and levels["model.n_layer"] == "8" else 1.0), 1.0


def frame(record: ComparisonRecord) -> pd.DataFrame:
    """Mean log step time of each process, with its levels and its wave."""
    rows = []
    for one in record.cells:
        if one.result.status is Status.DONE:
            logs = [np.log(block.median_step_seconds) for block in one.result.blocks]
            named = dict(zip("abc", one.cell.levels.values(), strict=True))
            rows.append({**named, "wave": str(one.wave), "y": float(np.mean(logs))})
    return pd.DataFrame(rows)


def unbalanced(record: ComparisonRecord) -> ComparisonRecord:
    """Some processes failed, none of them a whole row."""
    lost = {(4, 1), (6, 0), (9, 2), (0, 2), (1, 0)}
    names = [BASELINE, AGAIN, *record.treatments]
    cells = tuple(
        one.model_copy(update={"result": one.result.model_copy(update={"status": Status.FAILED})})
        if (names.index(one.cell.treatment), one.cell.seed) in lost
        else one
        for one in record.cells
    )
    return record.model_copy(update={"cells": cells})


def contrast(fit: Any, data: pd.DataFrame, changes: Sequence[Change]) -> np.ndarray:
    """The effect as a sum of fitted rows: differences over its own factors, means over all others."""
    own, total = dict(changes), np.zeros(len(fit.params))
    shared = ["wave" in name for name in fit.model.exog_names]  # of all rows, so that they cancel each other
    for levels in product(*FACTORS.values()):
        weight = 1.0
        for (key, known), level in zip(FACTORS.items(), levels, strict=True):
            if key not in own:
                weight /= len(known)
            else:
                weight *= 1.0 if level == own[key] else -1.0 if level == known[0] else 0.0
        row = (data[["a", "b", "c"]] == list(levels)).all(axis=1).to_numpy().argmax()
        total += weight * np.where(shared, 0.0, fit.model.exog[row])
    return total


def ordinary(data: pd.DataFrame) -> Any:
    """The fit of all interactions with a block for each wave."""
    return OLS.from_formula("y ~ C(a) * C(b) * C(c) + C(wave)", data).fit()


@pytest.mark.parametrize("balanced", [True, False])
def test_effects_and_errors_are_those_of_statsmodels(balanced: bool) -> None:
    record = study(factorial(FACTORS), figures, between=0.02)
    record = record if balanced else unbalanced(record)
    comparison = analyse(record)
    changes = row_changes(comparison, metrics()["step_seconds"])
    assert isinstance(changes, ProcessChanges)
    # The oracle pools all rows, also one that chance makes deviate more.
    changes = replace(changes, found=replace(changes.found, apart=np.full(len(changes.rows), False)))
    solved = model(layout(record), changes.rows, changes.covariance)
    assert isinstance(solved, Model)
    assert len(solved.terms) == 11
    data = frame(record)
    fit = ordinary(data)
    found = changes.contrasts(solved.weights, Scale.RATIO, 1)
    assert changes.found.pooled_degrees == fit.df_resid
    for at, term in enumerate(solved.terms):
        expected = fit.t_test(contrast(fit, data, term.changes))
        assert found.values[at] == pytest.approx(expected.effect.item(), abs=1e-9)
        error = found.half_widths[at] / critical_value(1, 0.0, fit.df_resid)
        assert error == pytest.approx(expected.sd.item(), rel=1e-9)


def test_losses_are_those_of_statsmodels_with_seeds_as_blocks() -> None:
    comparison = compared(factorial(FACTORS), lambda levels: (1.0, 1.0, figures(levels)[1]), apart=0.01)
    (found,) = (one for one in factor_effects(comparison) if one.metric == "val_loss")
    rows = [
        {
            **dict(zip("abc", one.cell.levels.values(), strict=True)),
            "wave": str(one.cell.seed),
            "y": one.result.val_loss,
        }
        for one in comparison.record.cells
    ]
    data = pd.DataFrame(rows)
    control = np.mean([data.y[data.wave == seed].iloc[0] for seed in ("0", "1", "2")])
    added, logged = ordinary(data), ordinary(data.assign(y=np.log(data.y)))
    for one in found.effects:
        for value, fit in ((one.points.value * control, added), (np.log1p(one.ratio.value), logged)):
            assert value == pytest.approx(fit.t_test(contrast(fit, data, one.changes)).effect.item(), abs=1e-9)


def test_with_four_factors_and_one_row_missing_it_is_the_model_without_the_largest_interaction() -> None:
    factors = dict.fromkeys(("a", "b", "c", "d"), ("0", "1"))
    rng = np.random.default_rng(2)
    rows = factorial(factors)[:-1]
    steps = {tuple(row.values()): float(np.exp(rng.normal())) for row in rows}
    record = study(rows, lambda levels: (1.0, steps[tuple(levels.values())], 1.0), between=0.02)
    found = next(one for one in factor_effects(analyse(record)) if one.metric == "step_seconds")
    data = pd.DataFrame(
        {**{key: float(level) - 0.5 for key, level in one.cell.levels.items()}, "wave": str(one.wave),
         "y": float(np.mean([np.log(block.median_step_seconds) for block in one.result.blocks]))}
        for one in record.cells
    )  # fmt: skip
    fit = OLS.from_formula("y ~ (a + b + c + d) ** 3 + C(wave)", data).fit()
    assert len(found.effects) == 14
    for one in found.effects:
        expected = fit.params[":".join(key for key, _ in one.changes)]
        assert np.log1p(one.ratio.value) == pytest.approx(expected, abs=1e-9)


def test_a_fraction_has_the_aliases_that_its_design_has_and_estimates_their_sum() -> None:
    full = factorial(dict.fromkeys(("a", "b", "c"), ("0", "1")))
    half = [{**row, "d": str(sum(map(int, row.values())) % 2)} for row in full]
    steps = {"a": 0.3, "b": -0.2, "c": 0.1, "d": 0.4}
    record = study(half, lambda levels: (1.0, float(np.exp(sum(steps[k] * int(v) for k, v in levels.items()))), 1.0))
    found = next(one for one in factor_effects(analyse(record)) if one.metric == "step_seconds")
    named = {"".join(key for key, _ in one.changes): one for one in found.effects}
    assert set(named) == {"a", "b", "c", "d", "ab", "ac", "ad"}
    assert {name: ["".join(key for key, _ in other) for other in one.aliases] for name, one in named.items()} == {
        "a": [], "b": [], "c": [], "d": [], "ab": ["cd"], "ac": ["bd"], "ad": ["bc"],
    }  # fmt: skip
    assert {name: np.log1p(named[name].ratio.value) for name in "abcd"} == pytest.approx(steps)


@pytest.mark.parametrize(("count", "size"), [(3, 4), (5, 8), (6, 16), (7, 8)])
def test_the_aliases_are_those_of_the_defining_words(count: int, size: int) -> None:
    vary = {f"f{at}": ["0", "1"] for at in range(count)}
    design = Fractional.model_validate({"vary": vary, "size": size})
    peak, *_ = factor_effects(compared(list(design.combinations()), lambda _: (1.0, 1.0, 1.0), seeds=1))
    basic = size.bit_length() - 1
    words = defining_words(best_generators(count, basic), basic)

    def mask(changes: Sequence[Change]) -> int:
        return sum(1 << int(key[1:]) for key, _ in changes)

    assert len(peak.effects) == size - 1
    assert not peak.unknown
    for one in peak.effects:
        expected = [other for other in aliases(mask(one.changes), words) if other != mask(one.changes)]
        assert {mask(other) for other in one.aliases} == set(expected)


def test_excluded_rows_leave_out_the_effects_that_need_them() -> None:
    rows = [row for row in factorial({"a": ("1", "2", "3"), "b": ("1", "2", "3")}) if tuple(row.values()) != ("3", "3")]
    found = factor_effects(compared(rows, lambda levels: (float(levels["a"]) * float(levels["b"]), 1.0, 1.0)))
    peak = next(one for one in found if one.metric == "tensors_peak_bytes")
    assert {one.changes for one in peak.effects} == {
        (("a", "2"),), (("b", "2"),),
        (("a", "2"), ("b", "2")), (("a", "2"), ("b", "3")), (("a", "3"), ("b", "2")),
    }  # fmt: skip
    assert set(peak.unknown) == {(("a", "3"),), (("b", "3"),), (("a", "3"), ("b", "3"))}
    by_name = {one.changes: one for one in peak.effects}
    # Doubling a adds 1, 2 and 3 times the control where b is 1, 2 and 3; as a ratio it never interacts with b.
    assert by_name[("a", "2"),].points.value == pytest.approx(2.0, abs=1e-6)
    assert by_name[("a", "2"),].points.interval is None
    assert by_name[("a", "2"), ("b", "3")].ratio.value == pytest.approx(0.0, abs=1e-6)
    assert by_name[("a", "2"), ("b", "3")].points.value == pytest.approx(2.0, abs=1e-6)


def failed(record: ComparisonRecord, level: str) -> ComparisonRecord:
    """The record in which every run with a level failed."""
    cells = tuple(
        one.model_copy(update={"result": one.result.model_copy(update={"status": Status.FAILED})})
        if level in one.cell.levels.values()
        else one
        for one in record.cells
    )
    return record.model_copy(update={"cells": cells})


def test_a_level_of_which_every_run_failed_is_unknown_and_in_no_average() -> None:
    rows = factorial({"a": ("1", "2", "5"), "b": ("3", "4")})
    made = study(rows, lambda levels: (float(levels["a"]) + float(levels["b"]), 1.0, 1.0))
    whole = factor_effects(analyse(made))[0]
    assert whole.absent == ()
    peak = factor_effects(analyse(failed(made, "5")))[0]
    assert {one.changes for one in peak.effects} == {(("a", "2"),), (("b", "4"),), (("a", "2"), ("b", "4"))}
    assert peak.unknown == ((("a", "5"),), (("a", "5"), ("b", "4")))
    assert peak.absent == (("a", "5"),)
    assert {one.changes for one in whole.effects} == {one.changes for one in peak.effects} | set(peak.unknown)


def test_a_factor_with_one_level_left_leaves_no_average_and_says_which_effects_are_unknown() -> None:
    made = study(factorial({"a": ("1", "2"), "b": ("3", "4")}), lambda levels: (float(levels["b"]), 1.0, 1.0))
    peak = factor_effects(analyse(failed(made, "2")))[0]
    assert peak.effects == ()
    assert peak.unknown == ((("a", "2"),), (("b", "4"),), (("a", "2"), ("b", "4")))


@pytest.mark.parametrize("kind", ["one_at_a_time", "ladder", "one factor"])
def test_designs_that_do_not_determine_effects_have_none(kind: str) -> None:
    three = dict.fromkeys(("x", "y", "z"), ("off", "on"))
    on = {
        "one_at_a_time": [(), ("x",), ("y",), ("z",)],
        "ladder": [(), ("x",), ("x", "y"), ("x", "y", "z")],
        "one factor": [(), ("x",)],
    }[kind]
    rows = [{key: "on" if key in some else "off" for key in three} for some in on]
    assert factor_effects(compared(rows, lambda _: (1.0, 1.0, 1.0))) == ()


def test_every_pair_and_triple_of_factors_is_there() -> None:
    found = factor_effects(compared(factorial(FACTORS), figures))[0]
    names = [tuple(key for key, _ in one.changes) for one in found.effects]
    wanted = [keys for size in (1, 2, 3) for keys in combinations(FACTORS, size)]
    assert list(dict.fromkeys(names)) == wanted
