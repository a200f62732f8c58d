"""`assay runs`: the list says what is true, two runs are held side by side, and what is removed is gone."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from assay.config import Home
from assay.config.run import Spec
from assay.launch.spawn import _locked
from assay.records.evidence import Evidence
from assay.records.status import Status
from assay.store.result import begun_result
from assay.store.run_folder import RunFolder
from cli.conftest import TINY, Assay
from support.children import Fake, make_ready
from support.dashboards import client
from support.records import made


@pytest.fixture
def two(assay: Assay, fake: Fake, corpus: str) -> tuple[str, str]:
    first = assay("train", corpus, *TINY, "--json").value["run"]
    second = assay("train", corpus, *TINY, "seed=1", "--with", "sdpa_attention", "--json").value["run"]
    return first, second


def test_an_empty_home_is_an_empty_list(assay: Assay, home: Home) -> None:
    assert assay("runs", "ls", "--json").value == []
    assert "no runs" in assay("runs", "ls").err
    assert not home.root.exists()


def test_the_list_is_newest_first(assay: Assay, two: tuple[str, str]) -> None:
    listed = assay("runs", "ls", "--json").value
    assert [row["run"] for row in listed] == [two[1], two[0]]
    assert all({"run", "status", "created"} <= row.keys() for row in listed)
    assert listed[0]["optimizations"] == ["sdpa_attention:backend=auto"]
    lines = assay("runs", "ls").out.splitlines()
    assert lines[0].split("\t")[:5] == ["run", "status", "created", "preset", "corpus"]
    assert lines[1].split("\t")[3:5] == ["demo", "corpus.txt"]
    assert len(lines) == 3


def test_the_list_is_narrowed(assay: Assay, two: tuple[str, str], home: Home) -> None:
    def runs(*words: str) -> list[str]:
        return [row["run"] for row in assay("runs", "ls", *words, "--json").value]

    assert runs("--limit", "1") == [two[1]]
    assert runs("--status", "done", "--preset", "demo") == [two[1], two[0]]
    assert runs("--status", "killed") == runs("--preset", "gpt2-124m") == []
    assert "none of the 2 runs" in assay("runs", "ls", "--status", "killed").err
    assert "did you mean 'killed'?" in assay("runs", "ls", "--status", "kiled").sentence()


def test_the_list_loads_no_models(assay: Assay, two: tuple[str, str], home: Home) -> None:
    """Neither those of torch nor those of a configuration: thousands of runs are listed at once."""
    assay("runs", "ls")
    heavy = (
        "torch",
        "pandas",
        "numpy",
        "assay.config.run",
        "assay.records.run",
        "assay.store.run_folder",
        "assay.records.trace",
    )
    code = "import sys; from assay.cli.main import app\ntry: app(['runs', 'ls'])\n"
    code += f"except SystemExit: print(sorted(set({heavy!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_run_has_the_name_that_it_was_given(assay: Assay, fake: Fake, corpus: str, home: Home) -> None:
    run = assay("train", corpus, *TINY, "--name", "best", "--json").value["run"]
    other = assay("train", corpus, *TINY, "--name", "best-2", "--json").value["run"]
    assert run.endswith("-best")
    assert [row["name"] for row in assay("runs", "ls", "--json").value] == ["best-2", "best"]
    assert assay("runs", "show", "best", "--json").value["run"] == run
    assert assay("runs", "show", "best-", "--json").value["run"] == other
    assert assay("runs", "diff", "best", "best-2", "--json").value["runs"] == [run, other]
    assert "is the start of 2 runs" in assay("runs", "show", "bes").sentence()
    assert assay("train", "--resume", "best-2", "training.steps=8", "--json").value["run"] == other
    assert assay("runs", "rm", "best-2", "--yes", "--json").value == {"removed": [other]}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--name", "best"), "is taken by the run"),
        (("--name", "last"), "means the run that was started last"),
        (("--name", "a/b"), "is not possible"),
        (("--name", ""), "is not possible"),
        (("--name", "x" * 65), "is not possible"),
        (("--name", "other", "--resume", "best"), "keeps its name"),
    ],
)
def test_names_that_cannot_be(
    assay: Assay, fake: Fake, corpus: str, home: Home, words: tuple[str, ...], expected: str
) -> None:
    assay("train", corpus, *TINY, "--name", "best", "--json")
    said = assay("train", *(() if "--resume" in words else (corpus, *TINY)), *words)
    assert said.code == 2
    assert expected in said.sentence()
    assert len(list(home.runs.iterdir())) == 1


def test_show_takes_the_start_of_an_id(assay: Assay, two: tuple[str, str]) -> None:
    assert assay("runs", "show", two[0][:-1], "--json").value["run"] == two[0]
    assert assay("runs", "show", "last", "--json").value["run"] == two[1]
    shown = assay("runs", "show", two[1]).out
    assert "model.n_embd\t8" in shown
    assert "sdpa_attention" in shown


def test_diff_shows_only_what_differs(assay: Assay, two: tuple[str, str]) -> None:
    found = assay("runs", "diff", *two, "--json").value
    assert found["runs"] == list(two)
    assert found["config"] == {"seed": ["0", "1"], "optimizations": ["none", "sdpa_attention:backend=auto"]}
    assert found["environment"] == {}
    assert found["figures"]["val_loss"] == [2.6, 2.6]
    assert "environment: the same" in assay("runs", "diff", *two).out


@pytest.mark.parametrize(
    ("name", "expected"), [("2", "more of the id"), ("nothing", "there is no run"), ("", "there is no run")]
)
def test_a_name_that_is_not_one_run(assay: Assay, two: tuple[str, str], name: str, expected: str) -> None:
    said = assay("runs", "show", name)
    assert said.code == 2
    assert expected in said.sentence()


def test_remove(assay: Assay, two: tuple[str, str], home: Home) -> None:
    said = assay("runs", "rm", two[0])
    assert said.code == 2
    assert "--yes" in said.sentence()
    assert assay("runs", "rm", two[0], two[0], "--yes", "--json").value == {"removed": [two[0]]}
    assert [row["run"] for row in assay("runs", "ls", "--json").value] == [two[1]]
    assert [path.name for path in home.runs.iterdir()] == [two[1]]


def test_a_running_one_is_not_removed(assay: Assay, two: tuple[str, str], home: Home) -> None:
    _pretend_running(home.runs / two[0])
    said = assay("runs", "rm", two[1], two[0], "--yes")
    assert said.code == 2
    assert "still running" in said.sentence()
    assert (home.runs / two[1]).exists(), "nothing is removed when one is refused"
    assert "still running" in assay("train", "--resume", two[0]).sentence()


def test_one_unreadable_result_hides_no_other(assay: Assay, two: tuple[str, str], home: Home) -> None:
    (home.runs / two[0] / "result.json").write_text("{")
    listed = {row["run"]: row for row in assay("runs", "ls", "--json").value}
    assert listed[two[0]]["status"] == "damaged"
    assert "cannot be read" in listed[two[0]]["reason"]
    assert listed[two[1]]["status"] == "done"


def test_an_unreadable_configuration_is_listed_and_noted(assay: Assay, two: tuple[str, str], home: Home) -> None:
    (home.runs / two[0] / "run.json").write_text("{}")
    (home.runs / two[0] / "result.json").unlink()
    said = assay("runs", "ls", "--json")
    assert {row["run"]: row["status"] for row in said.value} == {two[0]: "damaged", two[1]: "done"}
    assert "run.json cannot be read" in said.err
    assert f"{two[0]}\tdamaged" in assay("runs", "ls").out


def test_a_lost_store_is_made_again(assay: Assay, two: tuple[str, str], home: Home) -> None:
    before = assay("runs", "ls", "--json").value
    for path in home.root.glob("store.sqlite*"):
        path.unlink()
    assert assay("runs", "ls", "--json").value == before


def test_a_store_that_is_none_is_put_aside(assay: Assay, two: tuple[str, str], home: Home) -> None:
    before = assay("runs", "ls", "--json").value
    for path in home.root.glob("store.sqlite*"):
        path.unlink()
    home.store.write_bytes(b"this is no database, but a text that is long enough to be looked at " * 20)
    assert assay("runs", "ls", "--json").value == before
    assert home.store.with_name("store.sqlite.damaged").exists()


def _pretend_running(folder: Path) -> None:
    """As if this very process measured it."""
    import socket

    import psutil

    (folder / "result.json").unlink()
    me = psutil.Process(os.getpid())
    facts = {"host": socket.gethostname(), "pid": me.pid, "started": me.create_time()}
    (folder / "process.json").write_text(json.dumps(facts))


def test_a_run_whose_process_is_gone_is_killed(assay: Assay, two: tuple[str, str], home: Home) -> None:
    folder = home.runs / two[0]
    _pretend_running(folder)
    listed = {row["run"]: row["status"] for row in assay("runs", "ls", "--json").value}
    assert listed[two[0]] == "running"
    facts = json.loads((folder / "process.json").read_text())
    (folder / "process.json").write_text(json.dumps({**facts, "started": facts["started"] - 1000}))
    row = next(row for row in assay("runs", "ls", "--json").value if row["run"] == two[0])
    assert (row["status"], row["steps"]) == ("killed", 4)
    assert (folder / "result.json").exists()


def test_a_run_without_a_process_is_about_to_start_while_it_is_locked(
    assay: Assay, two: tuple[str, str], home: Home
) -> None:
    folder = RunFolder(home.runs / two[0])
    folder.result_file.unlink()
    folder.process_file.unlink(missing_ok=True)
    with _locked(folder):
        assert assay("runs", "show", two[0], "--json").value["status"] == "running"
    assert assay("runs", "show", two[0], "--json").value["status"] == "killed"


@pytest.mark.parametrize(("answer", "left"), [("n", 2), ("y", 1)])
def test_a_person_is_asked(assay: Assay, two: tuple[str, str], home: Home, answer: str, left: int) -> None:
    """On a terminal of its own, because only there is somebody to ask."""
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "assay.cli.main", "runs", "rm", two[0]]
    process = subprocess.Popen(command, stdin=child, stdout=child, stderr=child)
    os.close(child)
    os.write(parent, f"{answer}\n".encode())
    assert process.wait(timeout=30) == (0 if answer == "y" else 2)
    assert b"Delete 1 of the runs" in os.read(parent, 65536)
    os.close(parent)
    assert len(list(home.runs.iterdir())) == left


def test_texts_of_a_run_do_not_steer_the_terminal(assay: Assay, home: Home) -> None:
    """They may come from another machine, with `assay runs import`."""
    steering = "\x1b[2J\x1b]0;title\x07\u202egnp.exe\x9b31m"
    folder = made(home.ready(), make_ready(home))
    spec = folder.spec()
    config = spec.config.model_copy(update={"optimizations": (Spec(name=steering),)})
    spec = spec.model_copy(update={"preset": steering, "config": config})
    folder.prepare(spec)
    proof = Evidence(optimization=steering, observed=steering, verdict=True)
    ending = {"status": Status.FAILED, "reason": steering, "evidence": (proof,), "notes": (steering,)}
    folder.write_result(begun_result(spec).model_copy(update=ending))
    for words in (("ls",), ("show", folder.id), ("diff", folder.id, folder.id), ("ls", "--json")):
        said = assay("runs", *words)
        assert said.code == 0, said.err
        assert all(one.isprintable() or one in "\n\t" for one in said.out + said.err), words
    assert assay("runs", "ls").out.count("�[2J") == 2
    assert assay("runs", "show", folder.id).out.count("�[2J") >= 4
    assert assay("runs", "ls", "--json").value[0]["preset"] == steering


@pytest.mark.parametrize("figure", ["NaN", "Infinity", "1e308", "1e999"])
def test_a_run_with_a_figure_that_cannot_be_is_damaged_and_hides_no_other(
    figure: str, assay: Assay, two: tuple[str, str], home: Home
) -> None:
    record = RunFolder(home.runs / two[0]).result_file
    values = {**json.loads(record.read_bytes()), "val_loss": 0.125}
    values.pop("digest", None)
    record.write_text(json.dumps(values).replace("0.125", figure))
    assert [row["status"] for row in assay("runs", "ls", "--json").value] == ["done", "damaged"]
    shown = assay("runs", "show", two[0], "--json")
    assert (shown.code, shown.value["status"]) == (0, "damaged")
    assert f"{record} cannot be read (its figure val_loss is " in shown.value["reason"]
    assert assay("runs", "show", two[0]).code == 0
    assert assay("runs", "diff", *two).code == 0
    assert client(home).get(f"/runs/{two[0]}").status_code == 200
