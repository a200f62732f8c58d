"""Repositories of git that tests make."""

import subprocess
from pathlib import Path

_AUTHOR = ("-c", "user.name=A Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")


def git(folder: Path, *words: str) -> str:
    """Return what a command of git prints in a folder."""
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, message: str) -> None:
    """Commit all files of a folder, which becomes a repository if it is none."""
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", "--all")
    git(folder, *_AUTHOR, "commit", "--quiet", "--message", message)
