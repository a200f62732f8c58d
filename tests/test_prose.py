"""Docstrings are plain sentences: they open with their subject, and none has more than 25 words.

Modules and functions that they name are there.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.config import Run

SOURCE = Path(__file__).parents[1] / "src" / "assay"
FILES = sorted(SOURCE.rglob("*.py"))

LONGEST_SENTENCE = 25
"""Words."""
_NO_SUBJECT = re.compile(r"(Of|By|What|That|Those|The same|As|Whoever|Whatever|For|To|How|And|But|Which)\b")
_NO_PROSE = re.compile(r"\s*$|\s{4,}\S|\s*(?:[|`>$]|[-*] |\d+\. )")
"""Lines that are empty, indented, a table, code or an item of a list."""
_END = re.compile(r"(?<=[.:;!?])[)\"”]?\s+(?=[\"“(`*]*[A-Z0-9`*])|\n\n+")
_ABBREVIATED = re.compile(r"\b(?:e\.g|i\.e|et al|cf|vs|No|Fig|Sec|Eq|pp)\.")


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring, of attributes too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def prose(text: str) -> str:
    """The sentences of a docstring, without its tables, lists and formulas."""
    lines = text.strip("\n").split("\n")
    inset = min((len(one) - len(one.lstrip()) for one in lines[1:] if one.strip()), default=0)
    plain = [lines[0], *(one[inset:] for one in lines[1:])]
    return "\n".join("" if _NO_PROSE.match(one) else one for one in plain)


def faults(path: Path, text: str) -> Iterator[str]:
    """Yield what is wrong with the docstrings of a file, each with its line."""
    for line, said in docstrings(text):
        if _NO_SUBJECT.match(said.lstrip()):
            yield f"{path}:{line}: opens without its subject: {said.strip().splitlines()[0]}"
        for sentence in _END.split(_ABBREVIATED.sub("etc", prose(said))):
            words = re.findall(r"\S*\w\S*", sentence)
            if len(words) > LONGEST_SENTENCE:
                yield f"{path}:{line}: {len(words)} words: {' '.join(words[:8])} …"


_ROOMS = sorted(one.name for one in SOURCE.iterdir() if (one / "__init__.py").is_file())
_NAMED = re.compile(rf"`(?:assay\.)?((?:{'|'.join(_ROOMS)})(?:\.[A-Za-z_]\w*)+)`")
_NO_MODULES = re.compile(r"config\.context_length|parallel\.context|.*\.(?:json|safetensors|h)")
"""A value, a field of a program, and names of files."""


def is_there(name: str) -> bool:
    """Whether a dotted name is a setting, a module, or something that a module has."""
    room, *rest = name.split(".")
    settings = Run.model_fields.get(room)
    if settings is not None and rest[0] in getattr(settings.annotation, "model_fields", {}):
        return True
    place = SOURCE / room
    while rest and (place / rest[0] / "__init__.py").is_file():
        place /= rest.pop(0)
    module = place / "__init__.py"
    if rest and (place / f"{rest[0]}.py").is_file():
        module = place / f"{rest.pop(0)}.py"
    return not rest or rest[0] in set(bound(module.read_text("utf-8")))


def bound(text: str) -> Iterator[str]:
    """Yield the names that a module defines, assigns or imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name


def test_names_in_docstrings_are_there() -> None:
    texts = {path.relative_to(SOURCE): path.read_text("utf-8") for path in FILES}
    named = {(path, name) for path, text in texts.items() for name in _NAMED.findall(text)}
    assert len(named) > 100
    assert [one for one in sorted(named) if not _NO_MODULES.fullmatch(one[1]) and not is_there(one[1])] == []


@pytest.mark.parametrize("name", ["cost.timeline", "data.write_data", "training.stepz", "worker.result.missing"])
def test_a_name_that_is_gone_is_found(name: str) -> None:
    assert not is_there(name)


def test_docstrings_are_short_sentences_with_a_subject() -> None:
    assert [fault for path in FILES for fault in faults(path.relative_to(SOURCE), path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    "said",
    [
        "What it is.",
        "The sum. " + "word " * LONGEST_SENTENCE + "end.",
        "Sum, e.g. of " + "word " * LONGEST_SENTENCE + "end.",
    ],
)
def test_a_planted_docstring_is_a_fault_with_its_line(said: str) -> None:
    opening = '"""A file."""\n\n'
    for text in (f'X = 1\n"""{said}"""\n', f'class X:\n    """{said}"""\n', f'def x():\n    """{said}"""\n'):
        (fault,) = faults(Path("room/file.py"), opening + text)
        assert fault.startswith("room/file.py:4: ")


def test_tables_lists_and_code_are_no_sentences() -> None:
    words = "word " * (LONGEST_SENTENCE - 5)
    said = f"A table.\n\n    {words}{words}\n| {words}{words}\n- {words}{words}\n\n{words}end. More {words}end."
    assert list(faults(Path("file.py"), f'"""{said}"""\n')) == []
