"""A step as it is and as it was at a base commit, timed in two processes that take turns in short blocks.

Both are alive together, so every change of the machine's speed meets both. Each round is a block of each, in an order
that alternates. A round is disturbed if other programs took processor time in it, and further rounds replace it.

Two processes differ by chance for as long as they live, by the places of their memory. So a pair of them is one
observation, however many blocks it has, and several pairs are needed for an interval (`analysis.intervals`).

The base commit is a temporary worktree of git, which is removed in any case. What git does not track is not there, and
neither are submodules.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.config.extensions import names_a_function
from assay.errors import UsageError, short_text
from assay.files import scratch
from assay.launch.gpu_peak import last_message
from assay.platforms import kill_group, own_session
from assay.records.timing import Block

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


_PROGRAM = (sys.executable, "-P", "-m", "assay.worker.programs.timed_turns")
_ROUNDS, _FEWEST = 5, 3
"""Undisturbed rounds of a pair, and rounds that suffice after `_SECONDS`. At most twice as many rounds are run."""
_SECONDS = 20.0


@dataclass(frozen=True)
class TimedPair:
    """Rounds of two processes that took turns: a block of the base and one of the step as it is."""

    device: str
    """`cpu`, or the name of the GPU."""
    rounds: tuple[tuple[Block, Block], ...]

    @property
    def clean(self) -> tuple[tuple[Block, Block], ...]:
        """Rounds that nothing disturbed; all of them if those are too few."""
        found = tuple(one for one in self.rounds if not any(block.disturbed for block in one))
        return found if len(found) >= _FEWEST else self.rounds


def check_in_base(step: str, folder: Path, base: BaseTree) -> None:
    """Raise `UsageError` for a name of no function, and for a file that the base does not have."""
    if not names_a_function(step):
        raise UsageError(f"{short_text(step)} names no function; write file.py:function or module:function")
    where = step.rpartition(":")[0]
    there = base.counterpart(folder / where) if where.endswith(".py") else base.counterpart(folder)
    if not there.exists():
        raise UsageError(f"{step} is not in {base.title}, so there is no step to compare it with")


def timed_pair(
    step: str, folder: Path, base: BaseTree, number: int = 0, variables: Mapping[str, str] | None = None
) -> TimedPair:
    """Time the step that a function returns beside that of the base, in two new processes.

    `number` is that of the pair, by which the order alternates, and `variables` are further ones of the environment.
    Raises `UsageError` for a fault of the user's code, `ProcessKilled` and `RuntimeError` for a process that ends.
    """
    moved = [str(base.top), str(base.root)]
    tasks: tuple[dict[str, Any], ...] = (
        {"name": step, "folder": str(base.counterpart(folder)), "moved": moved},
        {"name": step, "folder": str(folder), "moved": None},
    )
    with ExitStack() as stack:
        sides = [stack.enter_context(_process(task, variables or {}, base)) for task in tasks]
        devices = [one.answer() for one in sides]
        if devices[0] != devices[1]:
            raise UsageError(f"{step} runs on {devices[1]}, and at {base.title} on {devices[0]}; give --device")
        return TimedPair(devices[0], tuple(_rounds(sides, number)))


def _rounds(sides: "Sequence[_Side]", number: int) -> Iterator[tuple[Block, Block]]:
    """Yield rounds until enough of them were undisturbed."""
    clean, began = 0, time.monotonic()
    for done in range(2 * _ROUNDS):
        late = done >= _FEWEST and time.monotonic() - began > _SECONDS
        if clean >= _ROUNDS or late:
            return
        order = (0, 1) if (number + done) % 2 else (1, 0)
        found = {side: Block.model_validate_json(sides[side].answer()) for side in order}
        clean += not any(one.disturbed for one in found.values())
        yield found[0], found[1]


@dataclass(frozen=True)
class _Side:
    """A process that times blocks when it has its turn."""

    process: "subprocess.Popen[str]"
    messages: Any
    """File to which its messages go."""
    base: BaseTree | None
    """Commit of its code; None for the working tree."""

    def answer(self) -> str:
        """Give it a turn, and return its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, which its output shows
        line = self.process.stdout.readline().strip()
        if line:
            return line
        code = self.process.wait()
        self.messages.seek(0)
        try:
            last = last_message(code, self.messages.read())
        except UsageError as error:
            raise UsageError(str(error) if self.base is None else _at_base(self.base, str(error))) from None
        raise RuntimeError(f"the process of the step ended with exit code {code}: {last}")


def _at_base(base: BaseTree, fault: str) -> str:
    """Return a fault of the base with its commit, and why a file may be missing there."""
    missing = any(one in fault for one in ("FileNotFoundError", "ModuleNotFoundError"))
    because = "; a commit has the files that git tracks, and no submodules" if missing else ""
    return f"at {base.title}: {fault.replace(f'{base.root}{os.sep}', '')}{because}"


@contextmanager
def _process(task: Mapping[str, Any], variables: Mapping[str, str], base: BaseTree) -> Iterator[_Side]:
    """Start a process, which begins to import and to build; at the end of the block it is killed with its children."""
    pipe = subprocess.PIPE
    with tempfile.TemporaryFile("w+") as messages:
        process = subprocess.Popen(
            _PROGRAM,
            stdin=pipe,
            stdout=pipe,
            stderr=messages,
            text=True,
            cwd=task["folder"],
            env={**os.environ, **variables},
            **own_session(),
        )
        try:
            assert process.stdin is not None
            process.stdin.write(f"{json.dumps(task)}\n")
            process.stdin.flush()
            yield _Side(process, messages, base if task["moved"] else None)
        finally:
            kill_group(process.pid)
            process.wait()
            for end in (process.stdin, process.stdout):
                if end is not None:
                    end.close()
