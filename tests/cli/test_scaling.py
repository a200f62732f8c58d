"""`assay scaling`: reports, JSON, and mistakes as one sentence."""

from pathlib import Path

import pytest

from assay.scaling.parametric import Parametric
from cli.conftest import Assay


@pytest.fixture
def points(tmp_path: Path) -> str:
    law, path = Parametric.of(1.7, 400.0, 1500.0, 0.34, 0.36), tmp_path / "points.csv"
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
        "points are too few to hold some out",
        "go up and down together",
        "mean absolute error",
    ):
        assert text in " ".join(said.out.split())
    value = assay("scaling", "fit", points, "--draws", "20", "--json").value
    assert (value["points"], value["dropped"], value["held_out"]) == (20, 0, None)
    assert value["constants"]["E"] == pytest.approx(1.7, rel=0.1)
    low, high = value["intervals"]["E"]
    assert low <= value["constants"]["E"] <= high


def test_published_laws_stand_side_by_side(assay: Assay) -> None:
    said = assay("scaling", "optimal", "--flops", "1e21")
    assert said.code == 0
    for text in ("Hoffmann 1", "Besiroglu", "Kaplan, C_min = C/2", "4.68G", "7.77G"):
        assert text in said.out
    value = assay("scaling", "optimal", "--params", "70B", "--json").value
    assert value["Hoffmann 1"]["parameters"] == pytest.approx(70e9)
    assert value["Hoffmann 1"]["ratio"] == pytest.approx(21.5, rel=0.05)


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
