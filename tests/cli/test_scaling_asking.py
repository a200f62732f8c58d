"""`assay scaling optimal` and `assay scaling batch`: reports, JSON, notebooks, and mistakes as one sentence."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.api import scaling
from assay.scaling.published import BESIROGLU
from cli.conftest import Assay
from support.trained import Trained


@pytest.fixture
def points(tmp_path: Path) -> str:
    path = tmp_path / "points.csv"
    rows = [
        f"{size:g},{size * ratio:g},{BESIROGLU.loss(size, size * ratio) * (1 + 0.003 * ((place * 7) % 5 - 2)):.6f}"
        for size in (3e7, 1e8, 3e8, 1e9)
        for place, ratio in enumerate((3, 10, 30, 100, 300))
    ]
    path.write_text("\n".join(["parameters,tokens,loss", *rows]))
    return str(path)


def test_all_that_can_be_asked_at_once(assay: Assay) -> None:
    words = ("--flops", "1e21", "--tokens-per-parameter", "200", "--inference-tokens", "1T")
    said = assay("scaling", "optimal", *words, "--device", "h100", "--devices", "8", "--price", "2.5")
    assert said.code == 0
    text = " ".join(said.out.split())
    for part in ("2.78B", "2.47B to 3.13B (80 %)", "arXiv:2401.00448", "times Common Crawl", "87 h 46 min", "1,755"):
        assert part in text
    value = assay("scaling", "optimal", *words, "--device", "h100", "--json").value["Besiroglu"]
    assert value["overtrained"]["tokens"] == pytest.approx(200 * value["overtrained"]["parameters"])
    assert value["served"]["total"] < 1
    assert value["cost"]["money"] is None
    assert value["text"]["bytes"][0] == pytest.approx(4 * value["tokens"])


def test_a_law_of_ones_own_points_stands_with_the_others(assay: Assay, points: str) -> None:
    value = assay("scaling", "optimal", "--flops", "1e19", "--points", points, "--json").value
    own = value["your points"]
    assert own["parameters"] == pytest.approx(value["Besiroglu"]["parameters"], rel=0.2)
    low, high = own["intervals"]["parameters"]
    assert low <= own["parameters"] <= high
    assert own["level"] == 0.95
    assert math.isclose(own["beyond"], 1e19 / (6 * 1e9 * 3e11))


def test_far_answers_are_marked_or_refused(assay: Assay) -> None:
    said = assay("scaling", "optimal", "--flops", "3.1e25")
    assert said.code == 0
    assert "refused: 10.3k × the fitted compute" in said.out
    assert "! 2.38k × the fitted compute" in said.out
    refused = assay("scaling", "optimal", "--params", "100T")
    assert refused.code == 2
    assert "add --far" in refused.sentence()
    value = assay("scaling", "optimal", "--params", "100T", "--far", "--json").value["Hoffmann 1"]
    assert value["text"]["bytes"] == pytest.approx([9e15, 11.3e15], rel=0.01)
    assert "smallest run behind" in assay("scaling", "optimal", "--flops", "1e15").out


def test_growth_of_a_run(assay: Assay) -> None:
    said = assay("scaling", "optimal", "--grow", "10", "--params", "124M", "--tokens", "10B")
    assert said.code == 0
    assert "With 10 times the compute" in said.out
    assert "666M" in said.out
    value = assay("scaling", "optimal", "--grow", "10", "--json").value["Kaplan, C_min = C"]
    assert value["parameters_times"] == pytest.approx(10**0.73)
    assert value["optimum"] is None


def test_the_critical_batch_size_of_a_real_run(assay: Assay, trained: Trained) -> None:
    folder = trained(3)
    words = ("scaling", "batch", "last", "--micro-batches", "16", "--sequences", "8")
    value = assay(*words, "--json").value
    probe = assay("gradients", "last", "--micro-batches", "16", "--sequences", "8", "--json").value["noise_scale"]
    critical = value["critical"]
    assert critical["size"] == pytest.approx(probe["sequences"])
    assert critical["unit"] == "sequences"
    assert folder.id in critical["source"]
    low, high = critical["interval"]
    assert math.log(high / low) == pytest.approx(2 * 1.96 * probe["standard_error"] / probe["sequences"])
    for one in value["batches"]:
        assert (one["steps"] - 1) * (one["examples"] - 1) == pytest.approx(1)
    said = assay(*words)
    assert said.code == 0
    assert "steps, times the least" in said.out


def test_batch_sizes_of_numbers(assay: Assay) -> None:
    said = assay("scaling", "batch", "--noise", "512", "--steps", "20k", "--batch-size", "64", "--step-seconds", "0.4")
    assert said.code == 0
    assert "4,444" in said.out
    assert "devices in proportion" in said.out
    value = assay("scaling", "batch", "--params", "1B", "--steps", "100k", "--batch-size", "512k", "--json").value
    assert value["planned"]["loss"] == pytest.approx(2.548, abs=0.001)
    assert [
        one["batch"] for one in assay("scaling", "batch", "--loss", "3", "--batches", "8,4", "--json").value["batches"]
    ]


def test_chinchillas_points_without_the_outliers_have_besiroglus_optimum(shared: Callable[[str], Path]) -> None:
    path = shared("chinchilla/hoffmann_figure4_extracted.csv")
    found = scaling.optimal(flops=1e23, points=path, drop=5).answers
    own, cited = found["your points"].optimum, found["Besiroglu"].optimum
    assert own is not None
    assert cited is not None
    assert own.parameters == pytest.approx(cited.parameters, rel=0.03)
    low, high = found["your points"].intervals["parameters"]
    assert low < cited.parameters < high


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("optimal", "--grow", "10", "--device", "h100"), "--grow goes with"),
        (("optimal", "--grow", "x"), "--grow is 'x'; write a number"),
        (("optimal", "--grow", "10", "--params", "1B"), "both parameters and tokens"),
        (("optimal", "--flops", "1e400"), "inf FLOPs are not possible"),
        (("optimal", "--flops", "1e21", "--devices", "8"), "name one with --device"),
        (("optimal", "--flops", "1e21", "--device", "abacus"), "no datasheet of a device 'abacus' is known"),
        (
            ("optimal", "--flops", "1e21", "--device", "h100", "--mfu", "2"),
            "mfu=2 is not possible; give a number from 1e-06 to 1",
        ),
        (("optimal", "--flops", "1e21", "--points", "none.csv"), "none.csv cannot be read"),
        (("optimal", "--flops", "1e21", "--tokens-per-parameter", "0"), "0 tokens for each parameter are not possible"),
        (("optimal", "--flops", "1e21", "--points", "POINTS", "--law", "kaplan-size"), "has no best size"),
        (("optimal", "--flops", "1e21", "--points", "POINTS", "--law", "none"), "none"),
        (("batch",), "follows from exactly one of"),
        (("batch", "last", "--loss", "3"), "follows from exactly one of"),
        (("batch", "nothing"), "there are no runs"),
        (("batch", "--noise", "1e400"), "noise scale inf is not possible"),
        (("batch", "--loss", "nan"), "loss nan is not possible"),
        (("batch", "--loss", "3", "--batches", "8,,4"), "--batches is ''; write a number"),
        (("batch", "--measured", "none.csv"), "none.csv cannot be read"),
    ],
)
def test_a_mistake_is_one_sentence(assay: Assay, points: str, words: tuple[str, ...], says: str) -> None:
    said = assay("scaling", *(points if word == "POINTS" else word for word in words))
    assert said.code == 2
    assert says in said.sentence()


def test_a_notebook_shows_reports_and_figures() -> None:
    optima, sizes = scaling.optimal(flops=1e21), scaling.batch(noise=512)
    assert "<table" in optima._repr_html_()
    assert "<img" in optima._repr_html_()
    assert "<img" in sizes._repr_html_()
    assert len(optima.to_frame()) == len(optima.answers) == 8
    assert len(scaling.growth(10).to_frame()) == 8
    assert sizes.to_frame().loc[512.0, "steps"] == 2.0


def test_every_verb_that_takes_points_takes_the_names_of_their_columns(assay: Assay, points: str) -> None:
    text = Path(points).read_text().replace("parameters,tokens,loss", "params_here,trained_on,val_bpb_here")
    Path(points).write_text(text)
    columns = ("--columns", "n=params_here,d=trained_on,loss=val_bpb_here")
    for words in (
        ("fit", points),
        ("predict", points, "--params", "1B", "--tokens", "20B"),
        ("isoflop", points),
        ("envelope", points),
        ("optimal", "--flops", "1e19", "--points", points),
        ("optimal", "--grow", "10", "--points", points),
    ):
        without = assay("scaling", *words)
        assert "it has the columns params_here" in without.sentence(), words
        said = assay("scaling", *words, *columns)
        assert said.code == 0 or "columns" not in said.sentence(), words
    assert "are those of a fit" in assay("scaling", "optimal", "--flops", "1e19", *columns).sentence()


def test_flops_that_contradict_6nd_are_warned_of_and_the_answer_costs_what_was_asked(assay: Assay, points: str) -> None:
    heading, *rows = Path(points).read_text().splitlines()
    counted = [f"{row},{1.67 * 6 * float(row.split(',')[0]) * float(row.split(',')[1]):g}" for row in rows]
    Path(points).write_text("\n".join([f"{heading},flops", *counted]))
    said = assay("scaling", "optimal", "--flops", "1e19", "--points", points)
    assert "! your points: FLOPs of these points are 1.67 times 6·N·D, about the same at all sizes." in said.out
    own = assay("scaling", "optimal", "--flops", "1e19", "--points", points, "--json").value["your points"]
    assert 1.67 * 6 * own["parameters"] * own["tokens"] == pytest.approx(1e19, rel=1e-4)
    assert own["flops_over_6nd"]["ends"] == pytest.approx([1.67, 1.67], rel=1e-4)
    assert "1.67 times 6·N·D" in assay("scaling", "fit", points).out
    assert "1.67 times 6·N·D" in assay("scaling", "predict", points, "--flops", "1e19").out
