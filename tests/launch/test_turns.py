"""Two processes that take turns: the order of blocks, disturbed rounds, and faults with their commit."""

import sys
from pathlib import Path

import pytest

from assay.errors import UsageError
from assay.launch import turns
from assay.launch.base_tree import BaseTree
from assay.launch.turns import TimedPair, check_in_base, timed_pair
from assay.records.timing import Block

PROGRAM = """
import json, sys, time
task = json.loads(sys.stdin.readline())
seconds = 3.0 if task["moved"] else 2.0
def say(line): print(line, flush=True)
fault = open("fault.txt").read() if __import__("os").path.exists("fault.txt") else ""
for turn, _ in enumerate(sys.stdin):
    if fault:
        print(fault, file=sys.stderr)
        sys.exit(int(fault.partition(" ")[0]))
    with open(FILE, "a") as file:
        file.write("b" if task["moved"] else "n")
    others = 10.0 if DISTURBED > turn > 0 else 0.0
    say("cpu" if turn == 0 else json.dumps(dict(
        steps=1, seconds=seconds, median_step_seconds=seconds, tokens=0, others_seconds=others, cores=2
    )))
"""


@pytest.fixture
def base(tmp_path: Path) -> BaseTree:
    """A base whose files are beside those of the working tree."""
    for name in ("now", "base"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "steps.py").touch()
    return BaseTree("main", "a1b2c3d", tmp_path / "now", tmp_path / "base")


@pytest.fixture
def order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file to which a stand-in for the processes writes whose turn it was."""
    stand_in(monkeypatch, tmp_path / "order.txt", 0)
    return tmp_path / "order.txt"


def stand_in(monkeypatch: pytest.MonkeyPatch, file: Path, disturbed: int) -> None:
    text = PROGRAM.replace("FILE", repr(str(file))).replace("DISTURBED", str(disturbed))
    monkeypatch.setattr(turns, "_PROGRAM", (sys.executable, "-S", "-c", text))


def test_blocks_alternate_and_so_do_pairs(base: BaseTree, order: Path) -> None:
    first = timed_pair("steps.py:build", base.top, base, 0)
    assert [tuple(one.seconds for one in pair) for pair in first.rounds] == [(3.0, 2.0)] * 5
    assert first.device == "cpu"
    assert order.read_text() == "bn" + "nbbnnbbnnb"
    timed_pair("steps.py:build", base.top, base, 1)
    assert order.read_text()[12:] == "bn" + "bnnbbnnbbn"


def test_disturbed_rounds_are_replaced(base: BaseTree, order: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, order, 4)
    found = timed_pair("steps.py:build", base.top, base)
    assert (len(found.rounds), len(found.clean)) == (8, 5)
    stand_in(monkeypatch, order, 99)
    found = timed_pair("steps.py:build", base.top, base)
    assert len(found.rounds) == len(found.clean) == 10


def test_rounds_that_take_long_are_three(base: BaseTree, order: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_SECONDS", 0.0)
    assert len(timed_pair("steps.py:build", base.top, base).rounds) == 3


@pytest.mark.parametrize(
    ("at", "fault", "error", "said"),
    [
        ("now", "2 steps.py has no function", UsageError, "^2 steps.py has no function$"),
        ("base", "2 steps.py has no function", UsageError, r"^at main \(a1b2c3d\): 2 steps.py has no function$"),
        ("base", "2 FileNotFoundError: a.bin", UsageError, "a.bin; a commit has the files that git tracks"),
        ("base", "7 broke", RuntimeError, "ended with exit code 7: 7 broke"),
    ],
)
def test_a_fault_names_its_commit(
    at: str, fault: str, error: type[Exception], said: str, base: BaseTree, order: Path
) -> None:
    (base.root.parent / at / "fault.txt").write_text(fault)
    with pytest.raises(error, match=said):
        timed_pair("steps.py:build", base.top, base)


def test_a_file_that_the_base_does_not_have_is_refused(base: BaseTree) -> None:
    check_in_base("steps.py:build", base.top, base)
    check_in_base("package.steps:build", base.top, base)
    with pytest.raises(UsageError, match=r"new.py:build is not in main \(a1b2c3d\)"):
        check_in_base("new.py:build", base.top, base)
    with pytest.raises(UsageError, match="names no function"):
        check_in_base("steps.py", base.top, base)


def test_too_few_clean_rounds_are_no_choice() -> None:
    def block(others: float) -> Block:
        return Block(steps=1, seconds=1.0, median_step_seconds=1.0, tokens=0, others_seconds=others, cores=1)

    rounds = tuple((block(0.0), block(others)) for others in (0.0, 0.0, 1.0, 1.0))
    assert TimedPair("cpu", rounds).clean == rounds
    assert TimedPair("cpu", (*rounds, rounds[0])).clean == (rounds[0],) * 3
