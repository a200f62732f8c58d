"""`assay scaling run`: from a configuration and a budget to the page, with cells whose losses follow a law."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.config import Home
from assay.records.run import RunResult
from assay.store.event_log import append
from assay.studies import isoflop_plan
from assay.studies.execution import ready as preparing
from assay.studies.isoflop_sizes import counts
from support.children import Fake
from support.instant_cells import Instant
from support.scaled import LAW, SMALL

from .conftest import Assay


class Lawful(Instant):
    """A cell that has the law's loss at once."""

    def result(self) -> RunResult:
        run = self._spec.config
        tokens = run.training.steps * run.tokens_per_step
        loss = float(LAW.loss(counts(run.model)["total"], tokens)) * (1 + 1e-3 * (tokens % 7 - 3) + 1e-4 * run.seed)
        append(self.folder.events_file, {"event": "evaluation", "step": run.training.steps, "loss": loss})
        figures: dict[str, Any] = {"val_loss": loss, "steps": run.training.steps, "tokens": tokens}
        done = super().result().model_copy(update=figures)
        self.folder.write_result(done)
        return done


@pytest.fixture
def words(tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A base on a text of a million bytes, on a machine whose steps take a millisecond."""
    path = tmp_path / "long.txt"
    path.write_text("The quick brown fox jumps over the lazy dog.\n" * 22_000)

    def timed(prepared: dict[str, Any], home: Home, prepare: Any) -> dict[str, Any]:
        return {
            name: replace(one, predicted=one.predicted.model_copy(update={"step_seconds": 1e-3, "step_flops": 10}))
            for name, one in prepared.items()
        }

    monkeypatch.setattr(isoflop_plan, "with_step_times", timed)
    monkeypatch.setattr(isoflop_plan, "measured_machine", lambda *_, **options: None)
    monkeypatch.setattr(preparing, "measured_machine", lambda *_, **options: None)
    monkeypatch.setattr(preparing, "start", Lawful)
    return (f"data.path={path}", *SMALL, "--ratio", "10")


def test_a_plan_says_what_it_takes_and_trains_nothing(assay: Assay, words: tuple[str, ...], home: Home) -> None:
    said = assay("scaling", "run", "demo", *words, "--budget", "20min", "--plan")
    assert said.code == 0, said.err
    assert "held out: 3 × 64" in said.out
    assert "FLOPs as 6·N·D" in " ".join(said.out.split())
    value = assay("scaling", "run", "demo", *words, "--budget", "20min", "--plan", "--json").value
    assert 0 < value["seconds"] <= 0.9 * 1200
    assert value["held_out"]["flops"] >= 10 * max(map(float, value["runs"]))
    assert not list(home.runs.iterdir())


def test_a_plan_with_branches_says_what_they_save(assay: Assay, words: tuple[str, ...], home: Home) -> None:
    asked = ("scaling", "run", "demo", *words, "--budget", "20min", "--branches", "--plan")
    said = " ".join(assay(*asked).out.split())
    assert "runs begin with steps of a longer one. This saves" in said
    assert "decay branches of the longest one at each seed" in said
    value = assay(*asked, "--json").value
    assert value["separate_seconds"] > value["seconds"]
    assert any(row["shared_steps"] for row in value["rows"])


def test_a_study_comes_to_its_law_its_points_and_its_page(
    assay: Assay, words: tuple[str, ...], home: Home, tmp_path: Path
) -> None:
    said = assay("scaling", "run", "demo", *words, "--budget", "20min")
    assert said.code == 0, said.err
    assert "The law of the small runs predicted a run with" in said.out
    page = Path(said.out.splitlines()[-1])
    before = page.read_bytes()
    assert b"How each number is made" in before
    again = assay("scaling", "report", "last")
    assert "The law of the small runs predicted a run with" in again.out
    assert page.read_bytes() == before
    printed = assay("scaling", "points", "last").out
    rows = list(csv.DictReader(printed.splitlines()))
    assert {row["role"] for row in rows} == {"fitted", "held out"}
    assert len(assay("scaling", "points", "last", "--all", "--json").value) == len(rows) + 4 * 3
    value = assay("scaling", "fit", "last", "--draws", "20", "--json").value
    assert value["points"] == sum(row["role"] == "fitted" for row in rows)
    assert value["held_out"]["count"] == 1
    assert value["held_out"]["mean_error"] < 0.02
    (file,) = (home.root / "scaling").iterdir()
    assert assay("study", "plan", str(file)).code == 0
    path = tmp_path / "points.csv"
    path.write_text(printed)
    assert assay("scaling", "fit", str(path), "--draws", "20", "--json").value["points"] == len(rows)


@pytest.mark.parametrize(
    ("words_", "says"),
    [
        (("run", "demo", "--budget", "soon"), "--budget is 'soon'; write a time such as 2h"),
        (("run", "demo", "--budget", "0s"), "a budget of 0 seconds is not possible"),
        (("run", "demo", "--budget", "1h", "--widths", "a"), "--widths is 'a'; write whole numbers"),
        (("run", "demo", "--budget", "1h", "--widths", "20"), "the width 20 is no multiple of a head"),
        (("run", "demo", "model.n_hidden=9", "--budget", "1h"), "model.n_hidden is set"),
        (("points", "last"), "there are no studies in"),
        (("fit", "nothing"), "there are no studies in"),
    ],
)
def test_a_mistake_is_one_sentence(assay: Assay, fake: Fake, words_: tuple[str, ...], says: str) -> None:
    said = assay("scaling", *words_)
    assert said.code == 2
    assert says in said.sentence()
