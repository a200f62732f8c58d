"""Two processes that take turns: the order of blocks, disturbed rounds, and files and faults of the base commit."""

import subprocess
import sys
from pathlib import Path

import pytest

from assay.errors import UsageError
from assay.launch import turns
from assay.launch.turns import BaseTree, TimedPair, base_tree, check_in_base, timed_pair
from assay.records.timing import Block
from support.repositories import commit, git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of two commits, whose file is changed since."""
    folder = tmp_path / "project"
    (folder / "tests").mkdir(parents=True)
    for text in ("one", "two"):
        (folder / "tests" / "steps.py").write_text(text)
        commit(folder, text)
    (folder / "tests" / "steps.py").write_text("three")
    (folder / "data.bin").write_text("untracked")
    return folder


def worktrees(folder: Path) -> int:
    return len(git(folder, "worktree", "list").splitlines())


def test_a_commit_is_checked_out_elsewhere_and_its_worktree_is_removed(repository: Path) -> None:
    with base_tree("HEAD~1", repository / "tests") as tree:
        there = tree.counterpart(repository / "tests" / "steps.py")
        assert there.read_text() == "one"
        assert not tree.counterpart(repository / "data.bin").exists()
        assert (tree.top, tree.title) == (repository, f"HEAD~1 ({git(repository, 'rev-parse', '--short', 'HEAD~1')})")
        assert worktrees(repository) == 2
        (tree.root / "written").write_text("by a step")
        with pytest.raises(UsageError, match=r"outside of the git repository .*project"):
            tree.counterpart(repository / ".." / "steps.py")
    assert worktrees(repository) == 1
    assert not tree.root.parent.exists()
    assert (repository / "tests" / "steps.py").read_text() == "three"


def test_an_interrupt_leaves_no_worktree(repository: Path) -> None:
    with pytest.raises(KeyboardInterrupt), base_tree("HEAD", repository) as tree:
        raise KeyboardInterrupt
    assert worktrees(repository) == 1
    assert not tree.root.exists()


def test_hooks_do_not_run_and_the_index_of_a_hook_stays(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {repository}/hooked\n")
    hook.chmod(0o755)
    index = repository / ".git" / "index"
    before = index.read_bytes()
    monkeypatch.setenv("GIT_DIR", ".git")
    monkeypatch.setenv("GIT_INDEX_FILE", str(index))
    with base_tree("HEAD~1", repository / "tests") as tree:
        assert (tree.root / "tests" / "steps.py").read_text() == "one"
    assert index.read_bytes() == before
    assert not (repository / "hooked").exists()


@pytest.mark.parametrize("revision", ["main~9", "no such", "--help", ""])
def test_a_revision_that_git_does_not_know_is_refused(revision: str, repository: Path) -> None:
    with pytest.raises(UsageError, match=r"git knows no commit .*fetch it"), base_tree(revision, repository):
        pass
    assert worktrees(repository) == 1


def test_a_folder_of_no_repository_is_refused_and_so_is_a_machine_without_git(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        pytest.raises(UsageError, match=r"git finds no repository at .*: not a git"),
        base_tree("a", tmp_path),
    ):
        pass
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="git could not be started"), base_tree("HEAD", repository):
        pass


def test_a_checkout_that_breaks_off_leaves_nothing(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = subprocess.run

    def broken(command: list[str], **options: object) -> object:
        done = run(command, **options)  # type: ignore[call-overload]
        if "add" in command:
            git(repository, "worktree", "lock", command[-2])
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr("assay.launch.turns.subprocess.run", broken)
    with pytest.raises(KeyboardInterrupt), base_tree("HEAD", repository):
        pass
    monkeypatch.undo()
    assert worktrees(repository) == 1


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
