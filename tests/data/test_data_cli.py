"""`assay data`: one JSON value or a list of lines on standard output, everything else on standard error."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay.cli.data import app
from assay.config import Home
from assay.errors import UsageError

run = CliRunner()


def test_prepare_then_ls(home: Home, story: Path) -> None:
    assert json.loads(run.invoke(app, ["ls", "--json"]).stdout) == []
    done = run.invoke(app, ["prepare", "demo", f"data.path={story}", "--json"])
    row = json.loads(done.stdout)
    assert done.stderr.startswith("reading ")
    assert row["train_tokens"] + row["validation_tokens"] == story.stat().st_size
    assert Path(row["folder"]).parent == home.data
    (listed,) = json.loads(run.invoke(app, ["ls", "--json"]).stdout)
    assert row == {**listed, "notes": []}
    lines = run.invoke(app, ["ls"]).stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["name", row["name"]]


def test_prepare_mends_and_ls_shows_damage(home: Home, story: Path) -> None:
    words = ["prepare", f"data.path={story}", "--json"]
    row = json.loads(run.invoke(app, words).stdout)
    (Path(row["folder"]) / "train.bin").write_bytes(b"")
    assert "it is prepared again" in json.loads(run.invoke(app, words).stdout)["notes"][0]
    (Path(row["folder"]) / "manifest.json").write_text("{")
    assert "is damaged" in json.loads(run.invoke(app, ["ls", "--json"]).stdout)[0]["error"]
    assert "is damaged" in run.invoke(app, ["ls"]).stdout


def test_a_fault_is_raised_for_the_main_command(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["prepare", "data.path=absent.txt"], ["prepare", "no-preset"], ["prepare", "data.tokeniser=char"]):
        assert isinstance(run.invoke(app, words).exception, UsageError)
    monkeypatch.setenv("ASSAY_HOME", "/dev/null/home")
    for words in (["ls"], ["prepare"]):
        assert isinstance(run.invoke(app, words).exception, UsageError)


def test_the_command_and_the_room_load_nothing_heavy() -> None:
    code = "import sys, assay.cli.data; assert 'numpy' not in sys.modules; import assay.data; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "tokenizers", "pooch", "pyarrow"} & set(loaded)
