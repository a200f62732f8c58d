"""Rules of the house that do not hold everywhere yet: what breaks one is in a list of `debts/`, which only shrinks.

A new fault is mended, not listed. An entry that no longer holds is removed. `MOST` has the length of each list, and is
lowered with it.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from assay.report.kit.view import _VIEWS

SOURCE = Path(__file__).parents[1] / "src" / "assay"
DEBTS = Path(__file__).parent / "debts"
LEAST_MODULES = 4
PROTOCOLS = ("analysis/metrics", "executors", "studies/kinds", "studies/library", "studies/documents", "scaling/laws")
"""Folders of a protocol that extensions follow, beside the techniques, each of which may be a folder."""
PUBLIC = Path("api/__init__.py")
"""Every public function is imported through it."""
MOST = {"small_folders": 0, "one_importer": 45, "file_names": 26, "class_names": 7, "nouns": 8, "participles": 0}
FLOORS = {
    "cli": ("cli",),
    "api": ("api",),
    "report": ("report",),
    "domain": ("absent", "advise", "analysis", "data", "estimator", "hardware", "launch", "own", "scaling", "studies"),
}
"""Rooms of each floor, in any of whose folders the noun of a question may be."""
NOUNS = (
    *("train", "study", "estimate", "plan", "inference", "cost", "accuracy", "capacity", "recommend"),
    *("anatomy", "measure", "gradients", "gate", "laws", "optimal", "batch", "scaling_study", "catalogue", "schema"),
)
"""One noun for each question: the name of a file or folder on every floor, in `api` also that of a function."""


@cache
def files() -> tuple[Path, ...]:
    """Source files, relative to the package."""
    return tuple(sorted(path.relative_to(SOURCE) for path in SOURCE.rglob("*.py")))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse((SOURCE / path).read_text(encoding="utf-8"))


def module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(("assay", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def small_folders() -> set[str]:
    """Folders with one to three modules, and without folders of their own."""
    counts: dict[Path, int] = defaultdict(int)
    for path in files():
        counts[path.parent] += path.name != "__init__.py"
    inner = {path.parent for path in counts}
    return {
        folder.as_posix()
        for folder, count in counts.items()
        if count < LEAST_MODULES and folder not in inner and folder.parts[:1] != ("optimizations",)
    } - set(PROTOCOLS)


def one_importer() -> set[str]:
    """Modules that exactly one module imports, which is in the same folder and not the list of public functions."""
    names = {module(path): path for path in files()}
    importers: dict[str, set[str]] = defaultdict(set)
    for path in files():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module:
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                found: Iterable[str] = (one if one in names else node.module for one in whole)
            elif isinstance(node, ast.Import):
                found = (alias.name for alias in node.names)
            else:
                continue
            for one in set(found) & names.keys():
                importers[one].add(module(path))
    shown = {f"assay.report.{view.rpartition('.')[0]}" for view in _VIEWS.values()}
    for one in shown & names.keys():  # the table of views imports by name
        importers[one].add("assay.report.kit.view")
    alone = {name: min(found) for name, found in importers.items() if len(found) == 1}
    return {
        names[name].as_posix()
        for name, importer in alone.items()
        if names[name].name != "__init__.py"
        and names[importer].parent == names[name].parent
        and names[importer] != PUBLIC
    }


def file_names() -> set[str]:
    """Names of files that are in several rooms. All floors are one room to the noun of a question, which each has."""
    floors = {room for rooms in FLOORS.values() for room in rooms}
    rooms: dict[str, set[str]] = defaultdict(set)
    for path in files():
        its_floor = path.stem in NOUNS and path.parts[0] in floors
        rooms[path.name].add("floors" if its_floor else path.parts[0])
    return {name for name, found in rooms.items() if len(found) > 1 and name not in ("__init__.py", "__main__.py")}


def class_names() -> set[str]:
    """Names of public classes that are in several files."""
    homes: dict[str, set[Path]] = defaultdict(set)
    for path in files():
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].add(path)
    return {name for name, found in homes.items() if len(found) > 1}


def functions() -> set[str]:
    """Public functions of `assay.api`. A module of the same name would hide the function, so it has another."""
    return set(import_module("assay.api").__all__)


def nouns() -> set[str]:
    """Floors on which a question has no file or folder with its noun."""
    held = {
        floor: {part.removesuffix(".py") for path in files() if path.parts[0] in rooms for part in path.parts[1:]}
        for floor, rooms in FLOORS.items()
    }
    held["api"] |= functions()
    return {f"{noun}: {floor}" for noun in NOUNS for floor, names in held.items() if noun not in names}


PARTICIPLE = re.compile(
    "[a-z]+ed|begun|bent|bound|broken|brought|built|caught|chosen|done|drawn|driven|fallen|felt|flown|forgotten|found"
    "|given|gone|grown|heard|held|hidden|kept|known|laid|left|lent|lost|made|meant|met|paid|said|seen|sent|shaken|shown"
    "|sold|sought|spent|spun|stood|stuck|struck|sunk|swept|taken|taught|thought|thrown|told|torn|understood|unwound|won"
    "|worn|wound|written"
)
"""Participles that are no verb as they stand, which *cut*, *put* and *read* are."""
IMPERATIVE = frozenset(("embed", "feed", "need", "proceed", "seed"))


def is_participle(name: str) -> bool:
    """True for a name of one word that is a past participle: `told`, `resolved`. It has no verb and names no result."""
    return name not in IMPERATIVE and PARTICIPLE.fullmatch(name) is not None


def participles() -> set[str]:
    """Public functions of modules whose name is a bare participle, each with its file."""
    return {
        f"{path.as_posix()}: {node.name}"
        for path in files()
        for node in tree(path).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_participle(node.name)
    }


RULES = {rule.__name__: rule for rule in (small_folders, one_importer, file_names, class_names, nouns, participles)}


def listed(name: str) -> list[str]:
    return (DEBTS / f"{name}.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", RULES)
def test_each_fault_is_in_the_list_of_its_rule_and_nothing_else_is(name: str) -> None:
    found, known = RULES[name](), listed(name)
    assert sorted(found - set(known)) == [], f"mend these; debts/{name}.txt only shrinks"
    assert sorted(set(known) - found) == [], f"these hold now; remove them from debts/{name}.txt"
    assert known == sorted(set(known))
    assert len(known) == MOST[name], "lower MOST with the list; it never grows"


def test_a_planted_fault_of_each_rule_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "api/lonely/__init__.py": "",
        "api/lonely/one.py": "from assay.api.lonely.two import Answer",
        "api/lonely/two.py": "class Answer: ...",
        "cli/one.py": "class Answer: ...\ndef told(): ...\ndef tell(): ...\ndef _held(): ...\ndef found_runs(): ...",
        "cli/two.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    planted = tuple(Path(name) for name in texts)
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path)
    monkeypatch.setattr(f"{__name__}.files", lambda: planted)
    monkeypatch.setattr(f"{__name__}.NOUNS", ("one",))
    tree.cache_clear()
    found = {name: rule() for name, rule in RULES.items()}
    tree.cache_clear()
    assert found == {
        "small_folders": {"api/lonely", "cli"},
        "one_importer": {"api/lonely/two.py"},
        "file_names": {"two.py"},  # one.py has the noun of a question
        "class_names": {"Answer"},
        "nouns": {"one: report", "one: domain"},
        "participles": {"cli/one.py: told"},
    }
