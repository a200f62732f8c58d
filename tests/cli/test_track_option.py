"""`--track` and `assay runs track`: what is said, and the exit codes."""

import pytest

from assay.config import Home
from cli.conftest import TINY, Assay
from support.children import Fake


@pytest.mark.parametrize(
    "words", [("train", "demo"), ("compare", "demo", "--with", "lion"), ("study", "run", "x.yaml")]
)
def test_an_unknown_tracker_exits_2_and_writes_nothing(assay: Assay, home: Home, words: tuple[str, ...]) -> None:
    said = assay(*words, "--track", "tensorbord")
    assert said.code == 2
    assert "did you mean 'tensorboard'" in said.sentence()
    assert not home.root.exists()


def test_a_missing_library_exits_2(assay: Assay, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.tracking.following.find_spec", lambda name: None)
    said = assay("train", "demo", "--track", "trackio")
    assert said.code == 2
    assert (
        said.sentence() == "the tracker trackio needs the package trackio; install with `pip install 'assay[trackio]'`"
    )
    assert not home.root.exists()


def test_the_last_line_is_how_to_look(assay: Assay, fake: Fake, corpus: str, home: Home) -> None:
    said = assay("train", corpus, *TINY, "--track", "tensorboard")
    assert said.code == 0
    assert said.err.splitlines()[-1] == f"tensorboard --logdir {home.tracked / 'tensorboard'}"
    again = assay("runs", "track", "last", "--to", "tensorboard")
    assert again.code == 0
    assert again.out == f"tensorboard --logdir {home.tracked / 'tensorboard'}\n"
    assert len(list((home.tracked / "tensorboard").iterdir())) == 1
    value = assay("runs", "track", "last", "--to", "tensorboard", "--folder", "else where", "--json").value
    assert value["failure"] is None
    assert value["look"].endswith("/else where'")


def test_a_run_that_is_not_there(assay: Assay, fake: Fake, corpus: str, home: Home) -> None:
    assert assay("runs", "track", "last", "--to", "tensorboard").code == 2
    assay("train", corpus, *TINY)
    said = assay("runs", "track", "nothing", "--to", "tensorboard")
    assert said.code == 2
    assert "there is no run 'nothing'" in said.sentence()
    (home.tracked).mkdir()
    (home.tracked / "file").write_text("")
    said = assay("runs", "track", "last", "--to", "tensorboard", "--folder", str(home.tracked / "file"))
    assert said.code == 2
    assert "is a file" in said.sentence()
