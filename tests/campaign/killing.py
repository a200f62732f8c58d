"""Runs of the command line that are killed with signal 9 at a moment that a number decides.

A moment is a line of the log and a delay after it, so that it falls into every phase however fast the machine is.
Whom it hits is drawn, too: the command, the process that it started, or one of the ranks.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from support.forked import Forked

STEPS = 20
SHAPE = (
    *("model.n_layer=2", "model.n_head=2", "model.n_embd=16", "model.context_length=16", "model.dropout=0.1"),
    *(f"training.steps={STEPS}", "training.batch_size=4", "training.checkpoint_interval=6"),
    *("training.eval_interval=10", "training.eval_batches=2", "training.measure_memory=false", "threads=1"),
)
GONE_SECONDS = 10.0
_STARTED_SECONDS = 240.0

KINDS = {
    "train": ("train", "demo", *SHAPE),
    "compare": (
        "compare",
        "demo",
        *SHAPE,
        "--with",
        "activation_checkpointing",
        *("--seeds", "1", "--processes", "1", "--blocks", "2"),
    ),
    "ranks": ("train", "demo", *SHAPE, "--nproc", "2", "--with", "data_parallel"),
}
VICTIMS = {
    "train": ("command", "child"),
    "compare": ("command", "child"),
    "ranks": ("command", "child", "rank"),
}
LINES = {"train": 60, "compare": 150, "ranks": 60}
"""About as many as a log has at its end, those of all cells together."""


@dataclass(frozen=True)
class Moment:
    """When a run is killed, and whom it hits."""

    number: int
    kind: str
    victim: str
    line: int
    delay: float
    checked: bool
    """Whether the values of the run are checked, by a process that is then killed, too; that takes long."""

    @property
    def words(self) -> tuple[str, ...]:
        """The command."""
        return (*KINDS[self.kind], f"training.check_values={str(self.checked).lower()}")

    @classmethod
    def draw(cls, number: int) -> "Moment":
        """Of the kinds in turn; everything else out of the number."""
        draw = random.Random(number)
        kind = list(KINDS)[number % len(KINDS)]
        victim = draw.choice(VICTIMS[kind])
        line = draw.randrange(LINES[kind])
        return cls(number, kind, victim, line, draw.uniform(0, 3.0 if line < 5 else 0.1), draw.random() < 0.2)


def assay(home: Path, *words: str, start: type["subprocess.Popen[str]"] = Forked) -> "subprocess.Popen[str]":
    """The command line as a process of its own. One that is to be killed is started, as its children are looked for."""
    return start(
        [sys.executable, "-m", "assay.cli.main", *words],
        env={**os.environ, "ASSAY_HOME": str(home), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def killed(home: Path, moment: Moment, text: str) -> tuple[int, list[int]]:
    """Start, kill at the moment, wait for the command's end → its exit code, and who is left 10 s later."""
    process = assay(home, *moment.words, text, start=subprocess.Popen)
    deadline = time.monotonic() + _STARTED_SECONDS
    while _lines(home) < moment.line and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(moment.delay)
    started = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    victim = _victim(process.pid, moment, started)
    with suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    if victim == process.pid:
        code = process.wait()
        return code, _left(started, GONE_SECONDS)
    process.communicate(timeout=_STARTED_SECONDS)
    return process.returncode, _left(started, GONE_SECONDS)


def _victim(command: int, moment: Moment, started: list[psutil.Process]) -> int:
    """The process to kill; the command itself where the one that was drawn is not there yet."""
    program = {"child": ("assay.worker", "assay.worker.processes.agent"), "rank": ("assay.worker",)}
    found: list[int] = []
    for process in started:
        with suppress(psutil.Error):
            own = process.ppid() == command
            if own == (moment.victim == "child") and set(process.cmdline()) & set(program.get(moment.victim, ())):
                found.append(process.pid)
    return random.Random(moment.number).choice(found) if found else command


def _left(started: list[psutil.Process], seconds: float) -> list[int]:
    _, alive = psutil.wait_procs(started, timeout=seconds)
    return [process.pid for process in alive if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def _lines(home: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in home.glob("runs/*/events.jsonl"))


def resumed(home: Path, run: str) -> dict[str, object]:
    """Go on with a run → what the command says of it."""
    process = assay(home, "train", "--resume", run, "--json")
    said, _ = process.communicate(timeout=_STARTED_SECONDS)
    assert process.returncode == 0, said
    value: dict[str, object] = json.loads(said)
    return value
