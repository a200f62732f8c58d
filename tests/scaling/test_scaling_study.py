"""Answers of studies whose law is known: it predicts the held-out run, and every part is what the record says."""

from collections import Counter
from pathlib import Path

import pytest

from assay.errors import UsageError
from assay.records.status import Status
from assay.records.study import BASELINE
from assay.report.scaling_study import verdict
from assay.scaling.points import read_points
from assay.scaling.scaling_study import answer, answer_of, array_of, points_of, to_csv, to_frame
from support.comparisons import record as comparison
from support.scaled import LAW, STUDY, scaled_record

HELD_OUT = STUDY.label(list(STUDY.combinations())[1])


def test_points_have_roles_counts_and_flops() -> None:
    points = points_of(scaled_record())
    assert [len([one for one in points if one.role == role]) for role in ("fitted", "held out", "rate")] == [30, 1, 4]
    largest = points[-1]
    assert (largest.role, largest.width, largest.layers) == ("held out", 64, 3)
    assert largest.flops == 6 * largest.total * largest.tokens
    assert largest.flops >= 10 * max(one.flops for one in points[:-1])
    assert largest.total > largest.non_embedding
    assert largest.epochs is not None


def test_points_go_to_csv_and_back(tmp_path: Path) -> None:
    points = points_of(scaled_record())
    path = tmp_path / "points.csv"
    path.write_text(to_csv(points))
    read = read_points(path)
    assert read.loss.tolist() == [one.loss for one in points]
    assert read.parameters.tolist() == [one.parameters for one in points]
    assert list(to_frame(points).columns)[:3] == ["row", "seed", "role"]


def test_the_law_of_the_small_runs_predicts_the_large_one() -> None:
    found = answer(scaled_record(), draws=40)
    (predicted,) = found.predictions
    assert abs(predicted.error) < 0.01
    assert predicted.inside
    assert predicted.low < predicted.loss < predicted.high
    assert len(found.law.fit.points) == 30, "the held-out run and other rates are not fitted"


def test_the_held_out_loss_changes_nothing_of_its_prediction() -> None:
    changed = scaled_record(changes={HELD_OUT: {"val_loss": 9.0}})
    (first,), (second,) = answer(scaled_record(), draws=20).predictions, answer(changed, draws=20).predictions
    assert (first.loss, first.low, first.high) == (second.loss, second.low, second.high)
    assert first.inside
    assert not second.inside


def test_parabolas_have_their_minimum_at_the_optimum_of_the_law() -> None:
    found = answer(scaled_record(noise=0.0), draws=5)
    assert found.isoflop is not None
    assert len(found.isoflop.parabolas) == 6
    inside = [one for one in found.isoflop.parabolas if one.inside is not None]
    assert len(inside) >= 2
    for one in inside:
        assert one.inside == pytest.approx(LAW.optimum(one.flops)[0], rel=0.3)


def test_the_rate_of_the_rule_is_tested_at_both_ends() -> None:
    found = answer(scaled_record(noise=0.0), draws=5)
    assert [(one.width, one.cost) for one in found.rates] == [(48, 0.0), (16, 0.0)]
    label = "2e+10 FLOPs, width 48, 1/2 × rate"
    better = answer(scaled_record(noise=0.0, changes={label: {"val_loss": 0.5}}), draws=5)
    assert better.rates[0].cost == pytest.approx(dict(better.rates[0].losses)["1"] - 0.5)


def test_runs_without_a_loss_are_named_and_not_fitted() -> None:
    label = "3.2e+11 FLOPs, width 16"
    found = answer(scaled_record(changes={label: {"status": Status.DIVERGED, "val_loss": None}}), draws=5)
    assert len(found.fitted) == 29
    assert found.unfinished == (f"{label}, seed 0",)
    nothing = scaled_record(changes={HELD_OUT: {"status": Status.DIVERGED}})
    assert answer(nothing, draws=5).predictions == ()


def test_too_few_runs_are_a_sentence_and_no_answer() -> None:
    whole = scaled_record()
    part = whole.model_copy(update={"cells": whole.cells[:5]})
    with pytest.raises(UsageError, match=r"the study \S+ has 3 points; the law needs at least 6"):
        answer(part)
    assert answer_of(part) is None
    assert answer_of(comparison()) is None


def test_a_comparison_has_points_of_one_role() -> None:
    points = points_of(comparison())
    assert {one.role for one in points} == {"fitted"}
    assert {one.row for one in points} >= {BASELINE}
    assert len(array_of(points)) == len(points)


def test_decay_branches_of_a_trunk_are_one_group_of_points(tmp_path: Path) -> None:
    points = points_of(scaled_record(branches=True))
    fitted = [one for one in points if one.role == "fitted"]
    arrays = array_of(fitted)
    assert sorted(Counter(arrays.drawn_together).values()) == [6] * 5, "a trunk for each width"
    assert {one.trunk for one in points if one.role != "fitted"} == {""}
    path = tmp_path / "points.csv"
    path.write_text(to_csv(points))
    read = read_points(path)
    again = array_of(points)
    assert read.drawn_together.tolist() == again.drawn_together.tolist()
    assert len(set(read.drawn_together)) == 5 + 1 + 4
    assert array_of(points_of(scaled_record())).trunk is None


def test_an_answer_says_what_branches_saved() -> None:
    found = answer(scaled_record(branches=True), draws=5)
    assert found.saving is not None
    assert any("25 decay branches did not repeat" in sentence for sentence in verdict(found))
    assert found.law.fit.points.trunk is not None
