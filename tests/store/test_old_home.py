"""A home that a version of 2026-11-22 wrote, before the house was cut: it is listed, shown and resumed bit for bit.

`whole` is a run of 12 steps, and `part` the same run, stopped after 6. The others are the cells of one comparison.
"""

import shutil
from pathlib import Path

import pytest

from assay import api
from assay.config import Home, identity
from assay.dashboard.study_answer import first_sentence
from assay.records.status import Status
from assay.report.kit.view import render, view
from assay.report.study.view import StudyView
from assay.store import history
from assay.store.lookup import find
from assay.store.run_folder import RunFolder
from support.forked import fork_children

OLD = Path(__file__).parents[1] / "support" / "old_home"
TEXT = "The quick brown fox jumps over the lazy dog. Pack my box with five dozen jugs.\n" * 40


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A copy of the old home, with the text of its corpus in the working directory."""
    shutil.copytree(OLD, tmp_path / "home")
    (tmp_path / "text.txt").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    return Home(tmp_path / "home")


def test_its_runs_are_listed_and_shown(home: Home) -> None:
    entries = api.runs.ls(home=home)
    assert len(entries) == 5
    assert sorted(one.status for one in entries) == ["budget_reached", *["done"] * 4]
    whole = api.runs.show("whole", home)
    assert (whole.status, whole.steps) == (Status.DONE, 12)
    assert [one.verdict for one in whole.evidence] == [True]
    assert api.runs.diff("whole", "part", home)["config"].keys() == {"training.tokens"}


def test_identities_are_what_they_were(home: Home) -> None:
    specs = [RunFolder(path).spec() for path in home.runs.iterdir()]
    assert len({spec.identity for spec in specs}) == 3
    assert all(identity(spec.config) == spec.identity for spec in specs)


def test_its_comparison_is_listed_and_analysed(home: Home) -> None:
    (listed,) = api.study.ls(home)
    assert (listed.kind, listed.status, listed.ended) == ("comparison", "complete", 3)
    shown = api.study.show("last", home)
    assert [row.treatment for row in shown.rows] == ["sdpa_attention"]
    assert shown.rows[0].status is Status.DONE


def test_its_comparison_is_called_not_sealed_wherever_it_is_shown(home: Home) -> None:
    """Its record is of a time before `comparison.json` had a digest."""
    shown = view(api.study.show("last", home))
    assert isinstance(shown, StudyView)
    assert shown.sentences[-1].startswith("Not sealed: comparison.json has no digest")
    assert shown.sentences[-1] in shown.values()["caveats"]
    assert shown.sentences[-1] in list(shown.blocks())
    assert shown.sentences[-1] in render(shown.comparison)
    assert first_sentence(shown).endswith(" (not sealed)")


def test_its_stopped_run_continues_bit_for_bit(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    fork_children(monkeypatch)
    resumed, whole = api.train("training.tokens=1000000", resume="part", home=home), api.runs.show("whole", home)
    assert (resumed.status, resumed.steps) == (Status.DONE, 12)
    folders = [find(home, name) for name in ("whole", "part")]
    before, after = ([one.loss for one in history.steps(folder.events())] for folder in folders)
    assert after == pytest.approx(before, rel=1e-3)
    assert resumed.environment is not None
    assert whole.environment is not None
    # Another processor, instruction set or torch adds numbers up in another order.
    if {"processor", "instruction_set", "torch"} & set(resumed.environment.differs(whole.environment)):
        pytest.skip("recorded on another kind of machine: losses are equal within rounding only")
    assert after == before
    one, other = (folder.checkpoints / "step-00000012" / "model.safetensors" for folder in folders)
    assert one.read_bytes() == other.read_bytes()
