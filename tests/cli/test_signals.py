"""A terminal that closes: the run saves and stops, although nothing can be printed any more."""

import json
import os
import pty
import signal
import sys
import time
from pathlib import Path

from cli.conftest import TINY
from support.children import FAKE_WORKER, LAUNCH, gone

ENDLESS = "training.steps=4000"


def on_a_terminal_that_closes(home: Path, corpus: str) -> Path:
    """Train with the stand-in on a terminal of its own, close the terminal at work, and wait for the end."""
    words = [sys.executable, "-c", LAUNCH, "|".join(FAKE_WORKER), "train", corpus, *TINY, ENDLESS]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, words, {**os.environ, "ASSAY_HOME": str(home), "FAKE": "slow", "TERM": "xterm"})
    deadline = time.monotonic() + 30
    while not list(home.glob("runs/*/events.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.read(terminal, 65536)
    os.close(terminal)
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    (folder,) = (home / "runs").iterdir()
    return folder


def test_a_run_whose_terminal_closes_is_saved(tmp_path: Path, corpus: str) -> None:
    folder = on_a_terminal_that_closes(tmp_path / "home", corpus)
    result = json.loads((folder / "result.json").read_bytes())
    assert result["status"] == "interrupted"
    assert 0 < result["steps"] < 4000
    assert list((folder / "checkpoints").iterdir())
    assert gone(json.loads((folder / "process.json").read_bytes())["pid"])
