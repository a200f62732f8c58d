"""`assay runs export` and `import`: runs and studies are carried to another home, and read there as they were."""

from pathlib import Path

import pytest

from assay.config import Home
from cli.conftest import TINY, Assay
from support.children import Fake


def moved(monkeypatch: pytest.MonkeyPatch, place: Path) -> Home:
    monkeypatch.setenv("ASSAY_HOME", str(place))
    return Home()


def test_a_run_is_listed_and_shown_in_another_home_as_it_was(
    assay: Assay, fake: Fake, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = assay("train", corpus, *TINY, "--json").value["run"]
    assay("train", corpus, *TINY, "seed=1")
    before = assay("runs", "show", first, "--json").value
    file = str(tmp_path / "one.tar.gz")
    assert "has 1 run and 0 studies" in assay("runs", "export", file, first).err
    moved(monkeypatch, tmp_path / "other")
    assert assay("runs", "import", file).err.strip() == "1 run and 0 studies new"
    assert [row["run"] for row in assay("runs", "ls", "--json").value] == [first]
    assert assay("runs", "show", first, "--json").value == before
    assert "0 runs and 0 studies new, 1 run and 0 studies here already" in assay("runs", "import", file).err


def test_checkpoints_that_stay_behind_are_said_here_and_there(
    assay: Assay, fake: Fake, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = assay("train", corpus, *TINY, "--json").value["run"]
    file, whole = str(tmp_path / "one.tar.gz"), str(tmp_path / "whole.tar.gz")
    assert "checkpoints of 1 run stay behind; --checkpoints takes them" in assay("runs", "export", file, run).err
    assert "stay behind" not in assay("runs", "export", whole, run, "--checkpoints").err
    assay("train", corpus, *TINY, "seed=1")
    assert "checkpoints of 2 runs stay behind" in assay("runs", "export", str(tmp_path / "two.tar.gz")).err
    home = moved(monkeypatch, tmp_path / "other")
    assay("runs", "import", file)
    came = f"`assay runs export FILE {run} --checkpoints` there takes them along; else train its"
    assert came in assay("sample", run).sentence()
    study = home.reports / "study"
    study.mkdir()
    (study / "events.jsonl").write_text(f'{{"event": "cell_start", "cell": "a", "run": "{run}", "wave": 0}}\n')
    assert "short runs of a study or a comparison keep none; train its" in assay("sample", run).sentence()


def test_a_study_goes_with_all_its_runs_and_its_page_is_drawn_from_them(
    assay: Assay, fake: Fake, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert assay("compare", corpus, *TINY, "--with", "lion", "--seeds", "2", "--processes", "1").code == 0
    before = {**assay("study", "show", "last", "--json").value, "page": None}
    runs = {row["run"] for row in assay("runs", "ls", "--json").value}
    assay("train", corpus, *TINY, "seed=9")
    file = str(tmp_path / "study.tar.gz")
    exported = assay("runs", "export", file, "--study", "last", "--json").value["folders"]
    assert {one.removeprefix("runs/") for one in exported if one.startswith("runs/")} == runs
    moved(monkeypatch, tmp_path / "other")
    assert assay("runs", "import", file, "--json").value == {"new": exported, "known": [], "left": []}
    shown = assay("study", "show", "last", "--json").value
    assert {**shown, "page": None} == before
    page = assay("study", "report", "last").out.strip()
    assert shown["page"] == page, "the page comes with its study"
    assert Path(page).read_text()


def test_the_record_of_a_study_alone_gives_its_answer_and_its_page(
    assay: Assay, fake: Fake, corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert assay("compare", corpus, *TINY, "--with", "lion", "--seeds", "2", "--processes", "1").code == 0
    before = {**assay("study", "show", "last", "--json").value, "page": None}
    page = Path(assay("study", "report", "last").out.strip()).read_bytes()
    file = str(tmp_path / "study.tar.xz")
    (folder,) = assay("runs", "export", file, "--study", "last", "--without-runs", "--json").value["folders"]
    home = moved(monkeypatch, tmp_path / "other")
    assert assay("runs", "import", file, "--json").value == {"new": [folder], "known": [], "left": []}
    assert {one.name for one in (home.root / folder).iterdir()} == {"study.json", "comparison.json"}
    assert {**assay("study", "show", "last", "--json").value, "page": None} == before
    assert Path(assay("study", "report", "last").out.strip()).read_bytes() == page


def test_runs_are_left_out_of_named_studies_only(assay: Assay, home: Home, tmp_path: Path) -> None:
    file = str(tmp_path / "a.tar.xz")
    for words in ((), ("last",), ("last", "--study", "last")):
        assert "studies are to be named" in assay("runs", "export", file, *words, "--without-runs").sentence()


def test_weights_that_cannot_be_exported_are_named(assay: Assay, home: Home, tmp_path: Path) -> None:
    file = tmp_path / "a.tar.gz"
    assert "there are no runs and no studies" in assay("runs", "export", str(file)).sentence()
    assert "there are no runs" in assay("runs", "export", str(file), "nosuch").sentence()
    assert "cannot be read" in assay("runs", "import", str(file)).sentence()
    assert not file.exists()


def test_a_damaged_run_keeps_no_other_from_being_exported(
    assay: Assay, fake: Fake, corpus: str, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = assay("train", corpus, *TINY, "--json").value["run"]
    second = assay("train", corpus, *TINY, "seed=1", "--json").value["run"]
    for name in ("run.json", "result.json"):
        (home.runs / first / name).write_text("{")
    file = str(tmp_path / "all.tar.gz")
    exported = assay("runs", "export", file, "--json")
    assert exported.value["folders"] == [f"runs/{second}"]
    assert f"left out {first}: " in exported.err
    assert f"{first} cannot be exported: " in assay("runs", "export", file, first).sentence()
    moved(monkeypatch, tmp_path / "other")
    assert assay("runs", "import", file, "--json").value["new"] == [f"runs/{second}"]
