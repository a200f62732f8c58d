"""Bad input and bad surroundings: one line, exit code 2, and nothing written."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from assay.cli import console
from assay.config import Home
from assay.errors import LONGEST_SENTENCE, LONGEST_VALUE, one_line, short_text
from cli.conftest import TINY, Assay
from support.children import Fake

LETTERS = "abcdefghi"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{one}: &{one} [{', '.join([f'*{before}'] * 9)}]\n" for before, one in pairwise(LETTERS)
)
"""A few lines that stand for hundreds of millions of values."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", "must be a mapping"),
        ("".join(" " * depth + "a:\n" for depth in range(800)), "nested deeper than 32 levels"),
        (f"seed: {'9' * 5000}", "more than 4,300 digits"),
        (f"seed: 0x{'9' * 5000}", "too large to print"),
        (BOMB, "more than 100000 values"),
        ("a: &a [*a]", "cannot be read"),
        (f"data: {{path: {'x' * 5000}}}", "no file"),
        ('data: {path: "a\\0b"}', "NUL"),
        ("# a remark\n" * 200_000, "longer than 1 MiB"),
    ],
)
def test_a_file_that_is_no_configuration(assay: Assay, home: Home, tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "run.yaml").write_text(text)
    said = assay("train", "run.yaml")
    assert said.code == 2
    assert expected in said.sentence()
    assert not home.root.exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train", "a" * 300], "File name too long"),
        (["train", "/dev/zero"], "is a device"),
        (["train", "data.path=/dev/zero"], "not a regular file"),
        (["train", "data.tokenizer=/dev/zero"], "no tokenizer"),
        (["train", f"data.path={'b' * 300}"], "no file or folder"),
        (["train", f"model.init_from={'b' * 300}"], "neither a folder nor a run"),
        (["train", f"training.steps={'7' * 9000}"], "4,300 digits"),
        (["train", "a.b" * 2000 + "=1"], "nested too deeply"),
        (["train", f"seed={'[' * 900}"], "nested deeper"),
        (["train", "data.path=~nobody-has-this-name/x"], "no file or folder"),
    ],
)
def test_words_that_no_verb_can_use(assay: Assay, home: Home, words: list[str], expected: str) -> None:
    said = assay(*words)
    assert said.code == 2
    assert expected in said.sentence()
    assert len(said.sentence()) <= LONGEST_SENTENCE
    assert not home.root.exists()


def test_a_text_is_told_how_to_be_trained_on(assay: Assay, tmp_path: Path) -> None:
    texts = ("Once upon a time\nthere was a king\n", "Romeo: what\nJulia: light: through\n", "a: b\n", "x" * 2_000_000)
    for text in texts:
        (tmp_path / "my.txt").write_text(text)
        said = assay("train", "my.txt")
        assert said.code == 2
        assert said.sentence().endswith("; to train on its text, write data.path=my.txt")


@pytest.mark.parametrize("verb", [["runs", "ls"], ["data", "ls"], ["train"], ["sample", "last"], ["data", "prepare"]])
def test_a_home_that_cannot_be(assay: Assay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str]) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("")
    for name, expected in (("loop/home", "symbolic links"), ("h" * 300, "too long"), ("file/home", "is a file")):
        monkeypatch.setenv("ASSAY_HOME", str(tmp_path / name))
        said = assay(*verb)
        assert said.code == 2
        assert expected in said.sentence()


def test_a_home_that_cannot_be_read(assay: Assay, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.ready()
    monkeypatch.setattr("assay.config.home.os.access", lambda place, mode: False)
    said = assay("runs", "ls")
    assert said.code == 2
    assert "cannot be read (Permission denied)" in said.sentence()


def test_a_home_that_cannot_be_written_is_read(
    assay: Assay, home: Home, fake: Fake, corpus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = assay("train", corpus, *TINY, "--json").value["run"]
    monkeypatch.setattr(Home, "writable", lambda self: False)
    before = sorted((path, path.stat().st_mtime_ns) for path in home.root.rglob("*"))
    assert [row["run"] for row in assay("runs", "ls", "--json").value] == [run]
    assert assay("runs", "show", run, "--json").value["run"] == run
    assert assay("data", "ls", "--json").code == 0
    assert sorted((path, path.stat().st_mtime_ns) for path in home.root.rglob("*")) == before


def test_a_folder_without_write_permission_is_not_writable(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    assert home.writable()
    home.ready()
    assert home.writable()
    monkeypatch.setattr("assay.config.home.os.access", lambda place, mode: place != home.root)
    assert not home.writable()


def test_a_link_to_a_run_is_not_removed(assay: Assay, home: Home, fake: Fake, corpus: str, tmp_path: Path) -> None:
    run = assay("train", corpus, *TINY, "--json").value["run"]
    (home.runs / run).rename(tmp_path / "elsewhere")
    (home.runs / run).symlink_to(tmp_path / "elsewhere")
    said = assay("runs", "rm", run, "--yes")
    assert said.code == 2
    assert "is a symbolic link" in said.sentence()
    assert (tmp_path / "elsewhere" / "run.json").exists()
    assert (home.runs / run).is_symlink()


def test_a_working_directory_that_was_deleted(assay: Assay, tmp_path: Path) -> None:
    place = tmp_path / "gone"
    place.mkdir()
    os.chdir(place)
    place.rmdir()
    said = assay("runs", "ls")
    os.chdir(tmp_path)
    assert said.code == 2
    assert "the working directory cannot be used" in said.sentence()


def in_a_shell(tmp_path: Path, line: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run a line in which $ASSAY is the command."""
    surroundings = {**os.environ, "ASSAY_HOME": str(tmp_path / "home"), "ASSAY": f"{sys.executable} -m assay.cli.main"}
    return subprocess.run(
        ["bash", "-c", line], env=surroundings | env, cwd=tmp_path, capture_output=True, text=True, check=False
    )


def test_standard_output_must_be_open(tmp_path: Path) -> None:
    for redirection in (">&-", "1</dev/null"):
        done = in_a_shell(tmp_path, f"$ASSAY optimizations {redirection}")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "assay: standard output is closed; redirect it to a file or to /dev/null\n"


def test_the_other_streams_may_be_closed(tmp_path: Path) -> None:
    done = in_a_shell(tmp_path, "$ASSAY mesh --world 4 <&- 2>&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("4 ranks")


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    done = in_a_shell(
        tmp_path, "for words in --help 'mesh --world 4000 --json'; do $ASSAY $words | true; echo ${PIPESTATUS[0]}; done"
    )
    assert (done.stdout, done.stderr) == ("0\n0\n", "")


def test_signs_that_an_encoding_lacks_are_spelled(tmp_path: Path) -> None:
    done = in_a_shell(
        tmp_path,
        "$ASSAY estimate demo --instants && $ASSAY estimate demo && $ASSAY estimate demo --json",
        PYTHONIOENCODING="latin-1",
    )
    assert done.returncode == 0, done.stderr
    table, _, value = done.stdout.partition("\n{")
    assert "<-" in table
    assert "##" in table
    assert "\\u" not in table
    assert json.loads("{" + value)


def test_a_sign_without_a_spelling_is_its_code() -> None:
    console.settle()
    assert "−1 → 2 \ud800 ❤".encode("latin-1", "assay.spelled") == rb"-1 -> 2 \ud800 \u2764"


def test_a_sentence_is_one_short_printable_line() -> None:
    long = one_line(f"a\n\x1b[31m {'x' * 1000} 'y {'y' * 1000}' then; do that")
    assert len(long) <= 2 * LONGEST_VALUE + 50
    assert long.isprintable()
    assert long.endswith("then; do that")
    assert len(one_line("word " * 1000)) <= LONGEST_SENTENCE
    assert one_line("short 'and' whole") == "short 'and' whole"


def test_a_value_is_shown_whatever_it_is() -> None:
    assert short_text("x") == "'x'"
    assert len(short_text(list(range(1000)))) <= LONGEST_VALUE
    assert "too large" in short_text(10**5000)
