"""Ctrl-C and SIGTERM end every verb that starts children, with exit code 130, and leave no child alive."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.conftest import TINY
from support.children import FAKE_WORKER, gone

LAUNCH = """
import os, sys
from assay.launch import anatomy, own, prepare, rates, spawn, step_times
from assay.records.prediction import Predicted
begun = "import os, sys, time; open(os.environ['BEGUN'], 'w').write(str(os.getpid())); "
rates._MEASURE = step_times._TIME = (sys.executable, "-S", "-c", begun + "time.sleep(1); sys.stdin.read()")
anatomy._CHILD = own._CHILD = (sys.executable, "-S", "-c", begun + "time.sleep(60)")
spawn.WORKER, spawn.FORK_SERVER = tuple(sys.argv[1].split("|")), (sys.executable, "-S", "-c", "")
if "capacity" not in sys.argv and "recommend" not in sys.argv:
    prepare.predict = lambda run, machine: Predicted()
from assay.cli.main import main
sys.argv = ["assay", *sys.argv[2:]]
main()
"""
"""Code of the command line, with stand-ins for all processes that it starts."""

SHORT = ("training.batch_size=2", "training.steps=400")
VERBS = {
    "capacity": ("capacity", "demo", *TINY[:4], "--memory", "5MB", "--verify"),
    "train": ("train", *TINY, *SHORT),
    "compare": ("compare", *TINY, *SHORT, "--with", "lion", "--seeds", "1", "--processes", "1"),
    "machine": ("machine", "--fresh"),
    "anatomy": ("anatomy", "demo", *TINY),
    "measure": ("measure", "mine.py:step"),
    "recommend": ("recommend", "demo", *TINY, "--memory", "1GB", "--calibrate", "90"),
}


def stopped(folder: Path, corpus: str, words: tuple[str, ...], number: signal.Signals) -> tuple[int, str, list[int]]:
    """Start a verb, stop it when its first child works, and return its exit code, its words and the children."""
    home, begun = folder / "home", folder / "begun"
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCH, "|".join(FAKE_WORKER), *words, *([] if words[0][0] == "m" else [corpus])],
        env={**os.environ, "ASSAY_HOME": str(home), "FAKE": "slow", "BEGUN": str(begun)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
    )
    deadline = time.monotonic() + 60
    while not (begun.exists() or list(home.glob("runs/*/events.jsonl"))) and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    children = [int(begun.read_text())] if begun.exists() else []
    return process.returncode, said, children


@pytest.mark.parametrize(
    ("verb", "number"),
    [
        ("capacity", signal.SIGTERM),
        *(
            pytest.param(verb, number, marks=pytest.mark.slow)
            for verb in VERBS
            for number in (signal.SIGINT, signal.SIGTERM)
        ),
    ],
)
def test_a_signal_ends_the_verb_and_its_children(
    verb: str, number: signal.Signals, tmp_path: Path, corpus: str
) -> None:
    (tmp_path / "mine.py").write_text("def step():\n    pass\n")
    code, said, children = stopped(tmp_path, corpus, VERBS[verb], number)
    assert code == 130, said
    assert "Traceback" not in said
    deadline = time.monotonic() + 10
    while not all(map(gone, children)) and time.monotonic() < deadline:
        time.sleep(0.05)  # a helper ends when its standard input closes
    assert all(map(gone, children))
    if verb == "capacity":
        assert len(list(tmp_path.glob("home/runs/*"))) < 4, "the other answers were verified after the signal"
