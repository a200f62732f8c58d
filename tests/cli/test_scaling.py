"""`assay scaling`: reports, JSON, and mistakes as one sentence."""

import os
import threading
from pathlib import Path

import pytest

from assay.scaling.laws import HOFFMANN
from cli.conftest import Assay


@pytest.fixture
def points(tmp_path: Path) -> str:
    law, path = HOFFMANN.of(1.7, 400.0, 1500.0, 0.34, 0.36), tmp_path / "points.csv"
    rows = [
        f"{size:g},{size * ratio:g},{law.loss(size, size * ratio) * (1 + 0.003 * ((place * 7) % 5 - 2)):.6f}"
        for size in (3e7, 1e8, 3e8, 1e9)
        for place, ratio in enumerate((3, 10, 30, 100, 300))
    ]
    path.write_text("\n".join(["parameters,tokens,loss", *rows]))
    return str(path)


def test_a_fit_has_constants_intervals_and_a_test_on_larger_runs(assay: Assay, points: str) -> None:
    said = assay("scaling", "fit", points, "--below", "1e19", "--draws", "20")
    assert said.code == 0
    for text in (
        "fitted to 11 points",
        "95 % interval",
        "points are too few to measure how errors grow",
        "go up and down together",
        "mean absolute error",
    ):
        assert text in " ".join(said.out.split())
    value = assay("scaling", "fit", points, "--draws", "20", "--json").value
    assert (value["points"], value["dropped"], value["held_out"]["count"]) == (20, 0, 4)
    assert value["constants"]["E"] == pytest.approx(1.7, rel=0.1)
    low, high = value["intervals"]["E"]
    assert low <= value["constants"]["E"] <= high


def test_points_may_come_through_a_pipe(assay: Assay, points: str, tmp_path: Path) -> None:
    """A shell hands one over in place of a file, and it can be read once only."""
    os.mkfifo(tmp_path / "pipe.csv")
    feed = threading.Thread(target=(tmp_path / "pipe.csv").write_text, args=(Path(points).read_text(),))
    feed.start()
    said = assay("scaling", "fit", str(tmp_path / "pipe.csv"), "--draws", "20", "--json")
    feed.join(10)
    assert said.value["points"] == 20


def test_published_laws_stand_side_by_side(assay: Assay) -> None:
    said = assay("scaling", "optimal", "--flops", "1e21")
    assert said.code == 0
    for text in ("Hoffmann 1", "Besiroglu", "Kaplan, C_min = C/2", "4.68B", "7.77B"):
        assert text in said.out
    value = assay("scaling", "optimal", "--params", "70B", "--json").value
    assert value["Hoffmann 1"]["parameters"] == pytest.approx(70e9)
    assert value["Hoffmann 1"]["ratio"] == pytest.approx(21.5, rel=0.05)


def test_laws_are_listed_with_their_counts_and_sources(assay: Assay) -> None:
    said = assay("scaling", "laws")
    for text in ("kaplan-joint", "N_c 6.4e+13", "never mixed", "arXiv:2305.16264"):
        assert text in said.out
    value = {one["law"]: one for one in assay("scaling", "laws", "--json").value}
    assert value["kaplan-size"]["published"]["Kaplan 2020"]["α_N"] == 0.076
    assert value["hoffmann"]["needs"] == ["parameters", "tokens"]


def test_a_fit_of_another_law_has_a_profile_and_shows_the_fit_of_all(assay: Assay, points: str) -> None:
    words = ("scaling", "fit", points, "--law", "saturating", "--drop", "2", "--profile", "normal", "--draws", "20")
    said = " ".join(assay(*words).out.split())
    for text in ("saturating: L(C) = a·C^b + c", "normal profile", "all 20 points", "without the 2 highest losses"):
        assert text in said
    value = assay(*words, "--json").value
    assert value["all_points"]["points"] == 20
    assert value["profile"]["likelihood"] == "normal"
    assert value == assay(*words, "--json").value


def test_a_loss_is_predicted_by_points_or_by_published_constants(assay: Assay, points: str) -> None:
    asked = ("scaling", "predict", points, "--draws", "20", "--params", "3B", "--tokens", "60B")
    assert "95 % interval" in assay(*asked).out
    (one,) = assay(*asked, "--json").value["predictions"]
    assert one["low"] < one["loss"] < one["high"]
    assert (one["beyond"], one["marked"]) == (pytest.approx(3), False)  # its size is three times the largest
    published = assay("scaling", "predict", "--law", "kaplan-size", "--params", "1B", "--json").value
    assert published["source"] == "Kaplan 2020"
    assert published["predictions"][0]["loss"] == pytest.approx((8.8e13 / 1e9) ** 0.076)
    assert published["predictions"][0]["low"] is None


def test_optima_of_parabolas_and_of_envelopes(assay: Assay, tmp_path: Path) -> None:
    law = HOFFMANN.of(1.7, 400.0, 1500.0, 0.34, 0.36)
    rows = [
        f"{size:g},{flops / 6 / size:g},{float(law.loss(size, flops / 6 / size))!r}"
        for flops in (1e19, 1e20)
        for size in (law.optimum(flops)[0] * factor for factor in (0.3, 0.6, 1.1, 2, 4))
    ]
    path = tmp_path / "budgets.csv"
    path.write_text("\n".join(["parameters,tokens,loss", *rows]), encoding="utf-8")
    said = assay("scaling", "isoflop", str(path), "--draws", "20")
    assert "approach 2 has 0.49 and 0.51" in said.out
    assert assay("scaling", "isoflop", str(path), "--draws", "20", "--json").value["parameters"]["exponent"] > 0.5
    curves = [
        f"{size:g},{tokens:g},{float(law.loss(size, tokens))!r}"
        for size in (1e7, 3e7, 1e8, 3e8, 1e9)
        for tokens in (size * ratio for ratio in (1, 3, 10, 30, 100, 300))
    ]
    path.write_text("\n".join(["parameters,tokens,loss", *curves]), encoding="utf-8")
    assert "The envelope reaches from" in assay("scaling", "envelope", str(path), "--draws", "20").out
    value = assay("scaling", "envelope", str(path), "--draws", "20", "--json").value
    assert value["parameters"]["exponent"] + value["tokens"]["exponent"] == pytest.approx(1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("optimal",), "give exactly one of FLOPs, parameters and tokens"),
        (("optimal", "--flops", "1e21", "--params", "1B"), "give exactly one"),
        (("optimal", "--flops", "much"), "--flops is 'much'; write a number such as"),
        (("optimal", "--params", "2"), "2 parameters are not possible; give a number from 1000 to 1e+20"),
        (("optimal", "--tokens", "1e300"), "1e+300 tokens are not possible"),
        (("optimal", "--flops", "nan"), "nan FLOPs are not possible"),
        (("optimal", "--flops", "-1"), "-1 FLOPs are not possible"),
        (("fit", "none.csv"), "none.csv cannot be read"),
        (("fit", "POINTS", "--drop", "18"), "2 points are left to fit"),
        (("fit", "POINTS", "--law", "newton"), "there is no law 'newton'; there are hoffmann"),
        (("fit", "POINTS", "--law", "kaplan-steps"), "lacks the column min_steps, which the law needs"),
        (("fit", "POINTS", "--profile", "huber"), "there is no likelihood 'huber'; there are laplace and normal"),
        (("predict", "--params", "1B"), "the law hoffmann needs tokens"),
        (("predict", "--flops", "1e21", "--source", "me"), "has no published constants of 'me'"),
        (("predict", "POINTS", "--flops", "1e27"), "times beyond the fitted points"),
        (("isoflop", "POINTS"), "no budget has three sizes"),
        (("envelope", "none.csv"), "none.csv cannot be read"),
    ],
)
def test_a_mistake_is_one_sentence(assay: Assay, points: str, words: tuple[str, ...], says: str) -> None:
    said = assay("scaling", *(points if word == "POINTS" else word for word in words))
    assert said.code == 2
    assert says in said.sentence()


def test_growth_multiplies_a_run(assay: Assay) -> None:
    value = assay("scaling", "optimal", "--grow", "10", "--params", "124M", "--tokens", "10B", "--json").value
    for one in value.values():
        assert one["flops"] == pytest.approx(10 * 6 * 124e6 * 10e9)
        assert one["parameters_times"] * one["tokens_times"] == pytest.approx(10)
        assert one["run"]["parameters"] == pytest.approx(124e6 * one["parameters_times"])
