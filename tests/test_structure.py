"""The rules of the house: the map of rooms is true, files, functions and classes stay small, imports run one way."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
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


def test_files_functions_and_classes_stay_small() -> None:
    assert [
        fault for path in FILES for fault in sizes(path.relative_to(SOURCE), path.read_text(encoding="utf-8"))
    ] == []


def sizes(path: Path, text: str) -> Iterator[str]:
    """Yield what is too large in a file, and what has a reason but no need of it, each with its line."""
    lines, count = text.splitlines(), text.count("\n")
    reasoned = any(line.startswith(LARGER) and len(line) > len(LARGER) for line in lines)
    if reasoned != (count > LARGEST_FILE):
        yield f"{path}:1: {count} lines; divide it, or say why in a line {LARGER!r}"
    tree = ast.parse(text)
    if not ast.get_docstring(tree):
        yield f"{path}:1: a file opens with its idea"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _length(node, path) > LONGEST_FUNCTION:
            yield f"{path}:{node.lineno}: {node.name} has {_length(node, path)} lines; divide it"
        if isinstance(node, ast.ClassDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            above = lines[first - 2] if first > 1 else ""
            reasoned = above.startswith(REASON) and len(above) > len(REASON)
            if reasoned != (_fields(node) > MOST_FIELDS):
                yield f"{path}:{node.lineno}: {node.name} has {_fields(node)} fields; divide it, or say why above it"


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef, path: Path) -> int:
    """Lines of a function; the declared options of a verb of the command line do not count."""
    first = function.body[0].lineno if "cli" in path.parts else function.lineno
    return (function.end_lineno or 0) - first + 1


def _fields(node: ast.ClassDef) -> int:
    """Number of declared fields, without class constants."""
    declared = (ast.unparse(one.annotation) for one in node.body if isinstance(one, ast.AnnAssign))
    return sum(not annotation.startswith("ClassVar") for annotation in declared)


_OPENING = '"""An idea."""\n'
_LONG = "def long():\n" + "    x = 1\n" * LONGEST_FUNCTION
_WIDE = "class Wide:\n" + "".join(f"    f{number}: int\n" for number in range(MOST_FIELDS + 1))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (_OPENING + "x = 1\n" * LARGEST_FILE, 1),
        (f"{_OPENING}{LARGER}no need\n", 1),
        (f"{_OPENING}{LARGER}\n" + "x = 1\n" * LARGEST_FILE, 1),
        ("x = 1\n", 1),
        (_OPENING + _LONG, 2),
        (_OPENING + "async " + _LONG, 2),
        (_OPENING + _WIDE, 2),
        (f"{_OPENING}{REASON}no need\nclass Narrow:\n    f: int\n", 3),
        (f"{_OPENING}{REASON}\n{_WIDE}", 3),
    ],
)
def test_each_planted_size_is_a_fault_with_its_line(text: str, line: int) -> None:
    (fault,) = sizes(Path("room/file.py"), text)
    assert fault.startswith(f"room/file.py:{line}: ")


def test_sizes_with_a_reason_and_constants_are_no_fault() -> None:
    constants = _WIDE.replace(": int", ": ClassVar[int]")
    reasoned = (
        f"{_OPENING}{LARGER}one table\n{REASON}one record\n@frozen\n{_WIDE}{constants}" + "x = 1\n" * LARGEST_FILE
    )
    assert list(sizes(Path("room/file.py"), reasoned)) == []
    options = "def verb(\n" + "".join(f"    a{number}: int,\n" for number in range(LONGEST_FUNCTION)) + "):\n    pass\n"
    assert list(sizes(Path("cli/verb.py"), _OPENING + options)) == []
    assert len(list(sizes(Path("api/verb.py"), _OPENING + options))) == 1


def test_imports_run_one_way() -> None:
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_test_is_named_by_a_statement_with_a_subject() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{number}: {line}"
        for path in TESTS.rglob("*.py")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1)
        if re.match(r"\s*(?:async )?def test_(?:what|of|by|that|those|for|to|how)_", line)
    ]
    assert found == []


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
def test_quick_imports_load_no_torch(code: str) -> None:
    check = f"{code}; import sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=60).returncode == 0
