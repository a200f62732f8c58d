"""A commit of the user's repository as files: a temporary worktree of git, which is removed in any case.

What git does not track is not there, and neither are submodules.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from assay.errors import UsageError, short_text
from assay.files import scratch

_OF_HOOKS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")
"""Variables that git sets for a hook. With them a worktree would be of that hook, and share its index."""


@dataclass(frozen=True)
class BaseTree:
    """Files of a commit."""

    revision: str
    """The commit as the user names it."""
    commit: str
    """Its identity, shortened."""
    top: Path
    """Folder of the working tree."""
    root: Path
    """Folder of the commit's files, which is elsewhere."""

    @property
    def title(self) -> str:
        """Name of the commit for a reader."""
        return self.revision if self.commit == self.revision else f"{self.revision} ({self.commit})"

    def counterpart(self, path: Path) -> Path:
        """Return the place of a file or folder in the commit. Raises `UsageError` if it is outside of the repository.

        It need not exist.
        """
        try:
            return self.root / path.resolve().relative_to(self.top)
        except ValueError:
            raise UsageError(f"{short_text(str(path))} is outside of the git repository {self.top}") from None


@contextmanager
def base_tree(revision: str, folder: Path) -> Iterator[BaseTree]:
    """Check out a revision of the repository to which a folder belongs, until the end of the block.

    Raises `UsageError` if the folder is in no repository, and if git does not know the revision.
    """
    top = Path(_git(folder, "rev-parse", "--show-toplevel", refused=f"git finds no repository at {folder}")).resolve()
    unknown = (
        f"git knows no commit {short_text(revision)} in {top}; fetch it if it is on a server, and in CI check out with "
        "fetch-depth: 0"
    )
    if revision.startswith("-"):
        raise UsageError(unknown)
    commit = _git(top, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", refused=unknown)
    short = _git(top, "rev-parse", "--short", commit, refused=unknown)
    with scratch("base") as place:
        root = place.resolve() / "tree"
        words = ("-c", f"core.hooksPath={os.devnull}", "worktree", "add", "--detach", "--quiet")
        try:
            _git(top, *words, str(root), commit, refused=f"git could not check out {short_text(revision)}")
            yield BaseTree(revision, short, top, root)
        finally:
            # A checkout that was broken off is locked, for which git wants the word twice.
            _run(top, "worktree", "remove", "--force", "--force", str(root))


def _git(folder: Path, *words: str, refused: str) -> str:
    """Return what a command of git prints. Raises `UsageError` if it fails, with its last line."""
    try:
        done = _run(folder, *words)
    except OSError as error:
        raise UsageError(f"git could not be started, which a base commit needs: {error.strerror}") from error
    if done.returncode:
        because = done.stderr.strip().splitlines()[-1:]
        raise UsageError(": ".join([refused, *(one.removeprefix("fatal: ") for one in because)]))
    return done.stdout.strip()


def _run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    given = {name: value for name, value in os.environ.items() if name not in _OF_HOOKS}
    return subprocess.run(
        ["git", "-C", str(folder), *words],
        env={**given, "GIT_TERMINAL_PROMPT": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,  # a Ctrl-C reaches this process alone, which then removes the worktree
    )
