"""The rules of the house: the map of rooms is true, files, functions and classes stay small, imports run one way."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "assay"
FILES = sorted(SOURCE.rglob("*.py"))
TESTS = Path(__file__).parent
LARGEST_FILE, LONGEST_FUNCTION, MOST_FIELDS = 400, 40, 20
LARGER = f"# More than {LARGEST_FILE} lines: "
"""A line of a longer file begins with it, and goes on with the reason."""
REASON = f"# More than {MOST_FIELDS} fields: "
"""The line above a class with more fields begins with it, and goes on with the reason."""


def test_the_architecture_names_every_room_and_no_other() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"## One direction\n.*?```\n(.*?)```", text, flags=re.DOTALL)
    named = [name for line in section.splitlines() for name in re.split(r" · ", re.split(r"\s{2,}", line)[0])]
    rooms = [path.name for path in SOURCE.iterdir() if path.is_dir() and (path / "__init__.py").exists()]
    files = [path.stem for path in SOURCE.glob("*.py") if not path.name.startswith("__")]
    assert sorted(named) == sorted([*rooms, *files])


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    reasoned = any(line.startswith(LARGER) and len(line) > len(LARGER) for line in text.splitlines())
    assert reasoned == (text.count("\n") > LARGEST_FILE), (
        f"{path} has {text.count(chr(10))} lines: divide it, or say why"
    )
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a file opens with its idea"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            too_long = f"{node.name} is longer than {LONGEST_FUNCTION} lines; divide it"
            assert _lines(node, path) <= LONGEST_FUNCTION, too_long


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef, path: Path) -> int:
    """Lines of a function; the declared options of a verb of the command line do not count."""
    first = function.body[0].lineno if "cli" in path.relative_to(SOURCE).parts else function.lineno
    return (function.end_lineno or 0) - first + 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_classes_have_few_fields_or_a_reason(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.ClassDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            above = lines[first - 2] if first > 1 else ""
            reasoned = above.startswith(REASON) and len(above) > len(REASON)
            assert reasoned == (_fields(node) > MOST_FIELDS), f"{node.name} has {_fields(node)} fields"


def _fields(node: ast.ClassDef) -> int:
    """Number of declared fields, without class constants."""
    declared = (ast.unparse(one.annotation) for one in node.body if isinstance(one, ast.AnnAssign))
    return sum(not annotation.startswith("ClassVar") for annotation in declared)


def test_imports_run_one_way() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_test_module_imports_another() -> None:
    """Shared helpers are in `support`, those of one folder beside its tests."""
    found = {
        f"{path.relative_to(TESTS)}: {name}"
        for path in TESTS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in _imported(node)
        if any(part.startswith("test_") for part in name.split("."))
    }
    assert found == set()


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    named = [alias.name for alias in node.names]
    return named if isinstance(node, ast.Import) else [f"{node.module or ''}.{name}" for name in named]


@pytest.mark.parametrize("code", ["import assay", "import assay.api", "import assay.estimator, assay.optimizations"])
def test_what_is_quick_imports_no_torch(code: str) -> None:
    check = f"{code}; import sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=60).returncode == 0
