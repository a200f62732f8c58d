"""The composite action: its steps run as they are, in a project of their own."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".github" / "actions" / "memory-gate"
ACTION: dict[str, Any] = yaml.safe_load((FOLDER / "action.yml").read_text(encoding="utf-8"))
STEP = """
import torch


def build():
    model = torch.nn.Linear(64, 64, bias=False)
    optimizer = torch.optim.SGD(model.parameters())

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()

    return step
"""


def run(project: Path, assay: str, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the steps with bash as GitHub does, with a program in the place of `assay`, until one fails."""
    (project / "bin").mkdir(exist_ok=True)
    program = project / "bin" / "assay"
    program.write_text(f"#!/bin/bash\n{assay}\n")
    program.chmod(0o755)
    given = {name: inputs.get(name, one["default"]) for name, one in ACTION["inputs"].items()}
    places = {name: str(project / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    path = f"{project / 'bin'}{os.pathsep}{os.environ['PATH']}"
    variables = os.environ | places | {"PATH": path, "GITHUB_ACTION_PATH": str(FOLDER), "PYTHONPATH": str(ROOT / "src")}
    for step in ACTION["runs"]["steps"]:
        assert step["shell"] == "bash"
        own = {name: text.replace("${{ inputs.", "").removesuffix(" }}") for name, text in step.get("env", {}).items()}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=project,
            env=variables | {name: given[text] for name, text in own.items()},
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode:
            break
    return done


def test_no_input_is_read_as_a_command() -> None:
    assert ACTION["runs"]["using"] == "composite"
    assert all("${{" not in step["run"] for step in ACTION["runs"]["steps"])


@pytest.mark.parametrize("code", [0, 2, 5])
def test_inputs_become_words_and_the_exit_code_is_that_of_the_check(code: int, tmp_path: Path) -> None:
    said = f'printf "%s\\n" "$@" > words; echo "# grew" > gate-summary.md; exit {code}'
    done = run(tmp_path, said, steps="a.py:build b.py:build; touch c", devices="cpu h100", allow="1%", strict="true")
    assert done.returncode == code
    words = (tmp_path / "words").read_text().split("\n")[:-1]
    assert words[:6] == ["gate", "check", "a.py:build", "b.py:build;", "touch", "c"]
    assert words[6:10] == ["--junit", "assay-gate.xml", "--markdown", "gate-summary.md"]
    assert words[10:] == ["--device", "cpu", "--device", "h100", "--allow", "1%", "--strict"]
    assert (tmp_path / "GITHUB_OUTPUT").read_text() == f"exit-code={code}\n"
    assert (tmp_path / "GITHUB_STEP_SUMMARY").read_text() == "# grew\n"
    assert not (tmp_path / "gate-summary.md").exists()


def test_without_inputs_the_whole_lock_is_checked(tmp_path: Path) -> None:
    assert run(tmp_path, 'printf "%s\\n" "$@" > words').returncode == 0
    assert (tmp_path / "words").read_text().split()[:3] == ["gate", "check", "--junit"]


@pytest.mark.slow
def test_a_project_passes_and_fails_when_its_step_grows(tmp_path: Path) -> None:
    real = f'exec "{sys.executable}" -P -m assay "$@"'
    (tmp_path / "train.py").write_text(STEP)
    variables = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-P", "-m", "assay", "gate", "update", "train.py:build"]
    subprocess.run(command, cwd=tmp_path, env=variables, check=True, timeout=300)
    assert run(tmp_path, real).returncode == 0
    (tmp_path / "train.py").write_text(STEP.replace(", bias=False", ""))
    done = run(tmp_path, real)
    assert done.returncode == 5
    assert "bias" in (tmp_path / "GITHUB_STEP_SUMMARY").read_text()
    assert "<failure" in (tmp_path / "assay-gate.xml").read_text()
