"""A base's code is imported from the base, and code of the working tree that got in all the same is a fault."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from assay.errors import UsageError
from assay.records.timing import Block
from assay.worker.programs.timed_turns import _check_imports, _move_imports

STEP = """
import torch
import part

def build():
    def step():
        with open(FILE, "a") as file:
            file.write(part.VERSION)
        print("a step prints")
    return step
"""


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    """A working tree and a base, each with a package in `src`; the working tree has an environment as well."""
    for name in ("now", "base"):
        (tmp_path / name / "src").mkdir(parents=True)
        (tmp_path / name / "src" / "part.py").write_text(f"VERSION = {name[0]!r}")
        (tmp_path / name / "steps.py").write_text(STEP.replace("FILE", repr(str(tmp_path / "order.txt"))))
    (tmp_path / "now" / ".venv").mkdir()
    return tmp_path / "now", tmp_path / "base"


def test_paths_of_the_working_tree_are_those_of_the_base(
    trees: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    top, root = trees
    kept = [str(top / ".venv"), "/usr/lib/python", str(root / "src")]
    monkeypatch.setattr(sys, "path", [str(top / "src"), str(top), *kept])
    _move_imports(top, root)
    assert sys.path == [str(root / "src"), str(root), *kept]


def test_a_module_of_the_working_tree_is_a_fault_if_the_base_has_its_file(
    trees: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    top, root = trees

    def load(path: Path) -> None:
        module = ModuleType("part")
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, "part", module)

    for harmless in (root / "src" / "part.py", top / ".venv" / "part.py", Path("/usr/lib/part.py")):
        load(harmless)
        _check_imports(top, root)
    load(top / "src" / "part.py")
    with pytest.raises(UsageError, match="part is imported from the working tree"):
        _check_imports(top, root)


@pytest.mark.slow
def test_a_process_answers_turns_until_its_input_closes(trees: tuple[Path, Path], tmp_path: Path) -> None:
    top, root = trees
    task = {"name": "steps.py:build", "folder": str(root), "moved": [str(top), str(root)]}
    command = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(top / 'src')!r}); {_RUN}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=root) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        answers = []
        for word in (json.dumps(task), "go", "go"):
            process.stdin.write(f"{word}\n")
            process.stdin.flush()
            answers += [] if word != "go" else [process.stdout.readline().strip()]
        _, printed = process.communicate(timeout=60)
    found = Block.model_validate_json(answers[1])
    assert answers[0] == "cpu"
    assert (tmp_path / "order.txt").read_text() == "b" * (3 + 1 + found.steps)
    assert "a step prints" in printed


_RUN = "from assay.worker.programs.timed_turns import main; sys.exit(main())"
