"""`assay accuracy`: the errors of an old home's predictions, read without a change; bad words refused."""

import shutil
from pathlib import Path

import pytest

import assay as package
from assay.config import Home
from cli.conftest import Assay

OLD = Path(__file__).parents[1] / "support" / "old_home"


def _files(root: Path) -> dict[str, tuple[bytes, int]]:
    paths = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


def test_an_old_home_is_read_and_left_as_it_is(assay: Assay, home: Home) -> None:
    shutil.copytree(OLD, home.root)
    before = _files(home.root)
    said = assay("accuracy")
    assert said.code == 0
    assert "all runs\tstep time, by a roofline\t2\t" in said.out
    assert "sdpa_attention\tstep time, by a roofline\t1\t" in said.out
    value = assay("accuracy", "--json").value
    assert (value["runs"], value["runs_without"], value["page"]) == (2, 3, None)
    assert {one["group"] for one in value["by_technique"]} == {"none", "sdpa_attention"}
    assert _files(home.root) == before


def test_a_damaged_record_is_counted_and_stops_nothing(assay: Assay, home: Home) -> None:
    shutil.copytree(OLD, home.root)
    next(home.runs.iterdir()).joinpath("result.json").write_text("{")
    said = assay("accuracy")
    assert "1 run cannot be read" in said.out
    assert assay("accuracy", "--json").value["unreadable"] == 1


def test_an_empty_home_says_what_is_missing(assay: Assay, home: Home) -> None:
    said = assay("accuracy")
    assert said.code == 0
    assert said.out.startswith("No run here has both a prediction and a measurement.")
    assert not home.root.exists()


def test_the_page_is_written_and_named(assay: Assay, home: Home, tmp_path: Path) -> None:
    shutil.copytree(OLD, home.root)
    said = assay("accuracy", "--page", "accuracy.html")
    assert said.out.splitlines()[-1] == str(tmp_path / "accuracy.html")
    assert "sdpa_attention" in (tmp_path / "accuracy.html").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("demo",), "unexpected extra argument"),
        (("--with=sgd",), "No such option: --with"),
        (("--page=/nowhere/x.html",), "cannot be written"),
    ],
)
def test_bad_words_are_one_sentence(assay: Assay, words: tuple[str, ...], says: str) -> None:
    said = assay("accuracy", *words)
    assert said.code == 2
    assert says in said.sentence()


def test_a_program_gets_a_frame_a_figure_and_a_report(home: Home) -> None:
    shutil.copytree(OLD, home.root)
    found = package.accuracy(home.root)
    frame = found.to_frame()
    assert len(frame) == len(found.predictions) == 2
    assert (frame["error"] == frame["predicted"] / frame["measured"] - 1).all()
    assert found.plot() is not None
    assert "by technique" in found._repr_html_()
    assert package.accuracy(home.root / "nothing").plot() is None
