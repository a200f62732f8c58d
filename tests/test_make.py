"""The Makefile: each target installs what it needs and says so in a line; `make demo` says first what it will show."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = """#!/bin/sh
if [ "$2" = venv ]; then mkdir -p "$3/bin" && cp "$0" "$3/bin/python"; fi
if [ "$2" = pip ]; then echo "$@" >> "$INSTALLED"; exit "${STATUS:-0}"; fi
"""
"""Stands for Python: it makes an environment that has itself, and writes down what pip is asked for."""


@pytest.mark.parametrize(
    ("target", "extras"),
    [
        ("demo", []),
        ("setup", []),
        ("test", ["test"]),
        ("slow", ["test"]),
        ("docs-run", ["test"]),
        ("gpu", ["test"]),
        ("docs", ["docs"]),
        ("site", ["docs"]),
        ("check", ["test", "docs"]),
        ("notebooks", ["test", "docs"]),
        ("browser", ["test", "browser"]),
    ],
)
def test_a_target_installs_the_extras_that_it_needs(tmp_path: Path, target: str, extras: list[str]) -> None:
    planned = made(tmp_path, "--dry-run", target).stdout
    installed = re.findall(rf"{tmp_path}/venv/bin/python -m pip .* --editable (\S+)", planned)
    assert list(dict.fromkeys(installed)) == [".", *(f"'.[{extra}]'" for extra in extras)]


def test_a_set_up_says_one_line_and_is_not_repeated(tmp_path: Path) -> None:
    done = made(tmp_path, "setup")
    (line,) = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"\d+ MB to download, [\d.]+ GB on disk", line)
    assert len(line.replace(str(tmp_path), "")) <= 100
    assert "--quiet --quiet" in (tmp_path / "installed").read_text()
    assert "Nothing to be done" in made(tmp_path, "setup").stdout


def test_a_failed_set_up_is_an_error_and_is_tried_again(tmp_path: Path) -> None:
    assert made(tmp_path, "setup", STATUS="1").returncode == 2
    assert made(tmp_path, "setup").returncode == 0


def test_the_demo_first_says_in_three_lines_what_it_will_show_and_for_how_long(tmp_path: Path) -> None:
    planned = made(tmp_path, "--dry-run", "demo").stdout
    before, _, _ = planned.partition(f"{tmp_path}/venv/bin/assay compare")
    lines = re.findall(r'^echo "([^"]*)"$', before, flags=re.MULTILINE)[-3:]
    assert "minutes" in lines[-1]
    assert max(map(len, lines)) <= 80
    assert before.rstrip().endswith(f'"{lines[-1]}"')


def made(folder: Path, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Make a target with the stand-in for Python, into an environment below the folder."""
    python = folder / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    command = ["make", "--no-print-directory", *words, f"PYTHON={python}", f"VENV={folder}/venv"]
    environment = {"PATH": "/usr/bin:/bin", "INSTALLED": str(folder / "installed"), **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
