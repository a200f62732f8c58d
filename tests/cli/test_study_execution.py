"""`assay study`: limits of time, cells beside each other, modes of resuming, states, stopping, and stages."""

import subprocess
import sys
from pathlib import Path

import pytest

from assay.config import Home
from assay.studies.folder import find
from support.children import Fake

from .conftest import TINY, Assay

HOLDER = """
import sys, time
from pathlib import Path
from assay.studies.folder import StudyFolder
with StudyFolder(Path(sys.argv[1])).locked():
    print("locked", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _fakes_are_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.studies.execution.run.elsewhere", lambda cells, machine, digest: {})


@pytest.fixture
def file(tmp_path: Path, corpus: str) -> str:
    path = tmp_path / "study.yaml"
    overrides = ", ".join((corpus, *TINY))
    path.write_text(
        f"kind: comparison\nquestion: Is Lion faster?\noverrides: [{overrides}]\nseeds: 2\nprocesses: 1\nblocks: 2\n"
        "treatments: [lion, sgd]\n"
    )
    return str(path)


def test_losses_only_has_no_times(assay: Assay, fake: Fake, file: str) -> None:
    said = assay("study", "run", file, "--loss-only", "--full")
    assert said.code == 0, said.err
    assert "Runs went beside each other, with one thread each, so their times are not compared." in said.out
    assert "interleaved" not in said.out
    assert "Too few runs for intervals of times" not in said.out
    found = assay("study", "show", "last", "--json").value
    assert {row["metrics"]["step_seconds"] for row in (found["baseline"], *found["rows"])} == {None}
    assert found["rows"][0]["change"]["step_seconds"] is None
    assert found["rows"][0]["change"]["val_loss"] is not None
    page = Path(assay("study", "report", "last").out.strip()).read_text()
    assert "timed blocks in each." not in page


def test_a_limit_of_time_leaves_a_study_that_says_what_it_cannot_conclude_and_resumes(
    assay: Assay, fake: Fake, file: str
) -> None:
    said = assay("study", "run", file, "--max-hours", "1e-9")
    assert said.code == 0, said.err
    left = "baseline, seed 1; baseline (again), seed 1; lion, seed 1; sgd, seed 1"
    assert "The limit of time ended the study before 4 of 8 runs could begin" in " ".join(said.out.split())
    told = " ".join(assay("study", "show", "last", "--full").out.split())
    assert "The limit of time ended the study before 4 of 8 runs could begin: all at seed 1." in told
    assert "Fewer processes than planned: lion (1 of 2), sgd (1 of 2)." in told
    assert assay("study", "show", "last", "--json").value["held_back"] == left.split("; ")
    status = assay("study", "status", "last").out
    assert "budget reached" in status
    assert "4 of 8 have ended" in status
    assert "assay study resume" in status
    resumed = assay("study", "resume", "last")
    assert resumed.code == 0
    assert "The limit of time" not in resumed.out
    assert assay("study", "status", "last", "--json").value["study"]["status"] == "complete"


def test_failed_cells_run_again_only_if_wanted(assay: Assay, fake: Fake, file: str, home: Home) -> None:
    fake.behaves(status="failed")
    assert assay("study", "run", file).code == 3
    assert "8 failed" in assay("study", "status", "last").out.replace("\t", " ")
    fake.behaves(status="out_of_memory")
    assert assay("study", "resume", "last").code == 3, "nothing was missing"
    assert assay("study", "resume", "last", "--mode", "retry-failed").code == 0
    runs = len(list(home.runs.iterdir()))
    assert assay("study", "resume", "last", "--mode", "retry-failed").code == 0, "out of memory is a result"
    assert assay("study", "resume", "last", "--mode", "read-only").code == 0
    assert len(list(home.runs.iterdir())) == runs
    fake.behaves()
    assert assay("study", "resume", "last", "--mode", "force").code == 0
    assert assay("study", "status", "last", "--json").value["by_status"] == {"done": 8}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--max-hours", "0"), "--max-hours 0 is not possible"),
        (("--max-hours", "nan"), "--max-hours nan is not possible"),
        (("--max-hours", "1e400"), "--max-hours inf is not possible"),
    ],
)
def test_an_impossible_limit_is_a_sentence(
    assay: Assay, fake: Fake, file: str, home: Home, words: tuple[str, ...], says: str
) -> None:
    said = assay("study", "run", file, *words)
    assert said.code == 2
    assert says in said.sentence()
    assert not home.reports.exists()


def test_an_unknown_mode_is_a_sentence(assay: Assay) -> None:
    said = assay("study", "resume", "last", "--mode", "all")
    assert said.code == 2
    assert "there is no mode 'all'; there are missing, retry-failed, force, read-only" in said.sentence()


def test_a_running_study_is_stopped(assay: Assay, fake: Fake, file: str, home: Home) -> None:
    assert assay("study", "run", file, "--max-hours", "1e-9").code == 0
    said = assay("study", "stop", "last")
    assert said.code == 2
    assert "no process runs the study" in said.sentence()
    folder = find(home, "last")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(folder.path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "locked\n"
    assert str(holder.pid) in assay("study", "status", "last").out
    stopped = assay("study", "stop", "last")
    assert stopped.code == 0, stopped.err
    assert "4 of 8 runs have ended" in stopped.err
    assert holder.wait() != 0


def test_a_study_starts_from_the_best_row_of_another(assay: Assay, fake: Fake, file: str, tmp_path: Path) -> None:
    assert assay("study", "run", file, "training.learning_rate=0.002").code == 0
    later = tmp_path / "later.yaml"
    fields = "kind: one_at_a_time\nseeds: 1\nprocesses: 1\nblocks: 1\nvary: {model.bias: [true, false]}\n"
    later.write_text(f"{fields}start_from: {{study: study, metric: tensors_peak_bytes}}\n")
    plan = assay("study", "plan", str(later))
    assert plan.code == 0, plan.err
    assert "The base is the row " in plan.out
    assert "with the best tensors, peak" in plan.out
    assert assay("study", "run", str(later)).code == 0
    said = assay("study", "show", "last", "--full")
    assert "The base is the row " in said.out
    assert assay("study", "show", "last", "--json").value["seeds"] == [2], "seeds 0 and 1 were used before"
    assert "The base is the row " in Path(assay("study", "report", "last").out.strip()).read_text()
    (newest, *_) = sorted((Home().reports).glob("*/study.json"), reverse=True)
    assert '"learning_rate": 0.002' in newest.read_text()


def test_settings_chosen_on_the_validation_split_are_reported_on_the_test_split(
    assay: Assay, fake: Fake, file: str, tmp_path: Path
) -> None:
    assert assay("study", "run", file, "data.evaluate_on=validation").code == 0
    assert "Validation losses are those of the validation split." in assay("study", "show", "last", "--full").out
    later = tmp_path / "later.yaml"
    fields = "kind: one_at_a_time\nseeds: 1\nprocesses: 1\nblocks: 1\nvary: {model.bias: [true, false]}\n"
    later.write_text(f"{fields}start_from: {{study: study, metric: tensors_peak_bytes}}\n")
    assert assay("study", "run", str(later)).code == 0
    said = assay("study", "show", "last", "--full").out
    assert "losses here are those of the test split" in " ".join(said.split())
    assert "Validation losses are those of the test split." in " ".join(said.split())


@pytest.mark.parametrize(
    ("start", "says"),
    [
        ("{study: other}", "this study starts from the answer of another one, but there is no study 'other'"),
        ("{study: cpu-fifteen (small)}", "lists them; first run `assay study run cpu-fifteen --scale small`"),
        ("{study: cpu-fifteen}", "lists them; first run `assay study run cpu-fifteen`"),
        ("{study: last, metric: loss}", "start_from names the metric 'loss', which does not exist"),
        ("{metric: val_loss}", "start_from.study: field required"),
        ("{study: last}", "is not complete; let it end, or resume it"),
    ],
)
def test_a_faulty_start_is_a_sentence(
    assay: Assay, fake: Fake, file: str, tmp_path: Path, start: str, says: str
) -> None:
    whole = ("--max-hours", "1e-9") if "complete" in says else ()
    assert assay("study", "run", file, *whole).code == 0
    later = tmp_path / "later.yaml"
    later.write_text(f"kind: comparison\ntreatments: [lion]\nstart_from: {start}\n")
    said = assay("study", "run", str(later))
    assert said.code == 2
    assert says in said.sentence()


def test_a_setting_of_the_command_line_that_levels_set_otherwise_is_named(
    assay: Assay, fake: Fake, tmp_path: Path, corpus: str
) -> None:
    path = tmp_path / "partly.yaml"
    path.write_text(
        f"kind: factorial\noverrides: [{', '.join((corpus, *TINY))}]\nseeds: 1\nprocesses: 1\nblocks: 2\n"
        "vary: {shape: {usual: {}, longer: {training.steps: 9, model.context_length: 12}}}\n"
    )
    told = "training.steps=8 does not hold for rows of longer (9), which set it."
    assert told in assay("study", "plan", str(path), "training.steps=8", "training.batch_size=2").out
    said = assay("study", "run", str(path), "training.steps=8", "training.batch_size=2")
    assert said.code == 0, said.err
    assert told in said.err
    assert "batch_size=2 does not hold" not in said.err


def test_levels_that_exclude_leaves_out_of_every_row_are_named_before_and_after(
    assay: Assay, fake: Fake, tmp_path: Path, corpus: str
) -> None:
    path = tmp_path / "idle.yaml"
    path.write_text(
        f"kind: factorial\noverrides: [{', '.join((corpus, *TINY))}]\nseeds: 1\nprocesses: 1\nblocks: 2\n"
        "vary: {optimizations: [none, lion], training.batch_size: [2, 4]}\nexclude: [{training.batch_size: '>= 80'}]\n"
    )
    told = "No row has what exclude leaves out: training.batch_size >= 80."
    assert told in assay("study", "plan", str(path)).out
    said = assay("study", "run", str(path), "--full")
    assert said.code == 0, said.err
    assert told in said.err
    assert told in " ".join(said.out.split())
