"""Docstrings are plain sentences: they open with their subject, and none has more than 25 words."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "assay"
FILES = sorted(SOURCE.rglob("*.py"))

LONGEST_SENTENCE = 25
"""Words."""
_NO_SUBJECT = re.compile(r"(Of|By|What|That|Those|The same|As|Whoever|Whatever|For|To|How|And|But|Which)\b")
_NO_PROSE = re.compile(r"\s*$|\s{4,}\S|\s*(?:[|`>$]|[-*] |\d+\. )")
"""Lines that are empty, indented, a table, code or an item of a list."""
_END = re.compile(r"(?<=[.:;!?])[)\"”]?\s+(?=[\"“(`*]*[A-Z0-9`*])|\n\n+")
_ABBREVIATED = re.compile(r"\b(?:e\.g|i\.e|et al|cf|vs|No|Fig|Sec|Eq|pp)\.")


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring, of attributes too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def prose(text: str) -> str:
    """The sentences of a docstring, without its tables, lists and formulas."""
    lines = text.strip("\n").split("\n")
    inset = min((len(one) - len(one.lstrip()) for one in lines[1:] if one.strip()), default=0)
    plain = [lines[0], *(one[inset:] for one in lines[1:])]
    return "\n".join("" if _NO_PROSE.match(one) else one for one in plain)


def faults(path: Path) -> list[str]:
    """What is wrong with the docstrings of a file."""
    found = []
    for line, text in docstrings(path):
        if _NO_SUBJECT.match(text.lstrip()):
            found.append(f"{line}: opens without its subject: {text.strip().splitlines()[0]}")
        for sentence in _END.split(_ABBREVIATED.sub("etc", prose(text))):
            words = re.findall(r"\S*\w\S*", sentence)
            if len(words) > LONGEST_SENTENCE:
                found.append(f"{line}: {len(words)} words: {' '.join(words[:8])} …")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_docstrings_are_short_sentences_with_a_subject(path: Path) -> None:
    assert not faults(path)
