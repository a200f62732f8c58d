"""What browser tests start: a Chromium as it is found, a dashboard of a home, and a run that trains meanwhile."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
TINY = ("model.n_layer=2", "model.n_embd=32", "model.context_length=32", "training.check_values=false")
LONGEST = 120
"""Seconds that a run or a page may take on a busy machine."""


def chromium() -> str | None:
    """Path of a Chromium; None if there is none."""
    named = os.environ.get("ASSAY_CHROMIUM")
    found = [named] if named else [shutil.which(name) for name in NAMES]
    if not any(found) and find_spec("playwright"):
        from playwright.sync_api import sync_playwright

        with sync_playwright() as play:
            found = [play.chromium.executable_path]
    return next((one for one in found if one and Path(one).exists()), None)


def assay(home: Path, *words: str) -> "subprocess.Popen[str]":
    """Start the command on a home."""
    command = [sys.executable, "-m", "assay", *words]
    environment = {**os.environ, "ASSAY_HOME": str(home), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


@contextmanager
def training(home: Path, steps: int) -> Iterator["subprocess.Popen[str]"]:
    """A run of the demo that trains meanwhile, and is stopped at the end."""
    run = assay(home, "train", "demo", *TINY, f"training.steps={steps}", "training.warmup_steps=1")
    try:
        yield run
    finally:
        run.terminate()
        run.communicate(timeout=LONGEST)


@contextmanager
def dashboard(home: Path, *words: str) -> Iterator[str]:
    """The address of a dashboard that serves a home meanwhile; its output must have no traceback."""
    server = assay(home, "dashboard", "--port", "0", *words)
    assert server.stdout is not None
    try:
        line = server.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + server.stdout.read()
        yield found[0].rstrip("/")
    finally:
        server.terminate()
        said, _ = server.communicate(timeout=LONGEST)
    assert "Traceback" not in said, said
