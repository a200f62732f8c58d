"""Completion by a shell: what `--show-completion` and `--install-completion` give a real bash, and what it imports."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.imports import HEAVY, imported

COMMAND = Path(sys.executable).with_name("assay")
COMPLETED = 'COMP_WORDS=({words}); COMP_CWORD={last}; _assay_completion assay; echo "${{COMPREPLY[@]}}"'


def in_bash(script: str, home: Path) -> str:
    """Run a script in a bash that finds the command, with a home of its own, and return what it prints."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    path = f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [bash, "--norc", "-c", f"set -e; {script}; exit 0"],
        env={**os.environ, "PATH": path, "HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("words", "expected"),
    [("assay tra", "train"), ("assay study res", "resume"), ("assay compare --see", "--seeds"), ("assay trx", "")],
)
def test_a_shown_script_completes_verbs_and_options(tmp_path: Path, words: str, expected: str) -> None:
    asked = COMPLETED.format(words=words, last=len(words.split()) - 1)
    assert in_bash(f'eval "$(assay --show-completion bash)"; {asked}', tmp_path) == expected


def test_an_installed_script_is_read_by_the_next_shell(tmp_path: Path) -> None:
    asked = COMPLETED.format(words="assay docto", last=1)
    said = in_bash(f"assay --install-completion; source ~/.bashrc; {asked}", tmp_path)
    assert said.splitlines()[-1] == "doctor"
    assert (tmp_path / ".bashrc").exists()


def test_completing_imports_nothing_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_ASSAY_COMPLETE", "complete_bash"), ("COMP_WORDS", "assay tra"), ("COMP_CWORD", "1")):
        monkeypatch.setenv(name, value)
    seen = imported(str(COMMAND))
    assert "typer" in seen
    assert not seen & HEAVY
