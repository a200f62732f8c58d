"""Files of a commit in a temporary worktree, of which nothing stays; and what git cannot give is a sentence."""

import subprocess
from pathlib import Path

import pytest

from assay.errors import UsageError
from assay.launch.base_tree import base_tree
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

    monkeypatch.setattr("assay.launch.base_tree.subprocess.run", broken)
    with pytest.raises(KeyboardInterrupt), base_tree("HEAD", repository):
        pass
    monkeypatch.undo()
    assert worktrees(repository) == 1
