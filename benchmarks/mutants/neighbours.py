"""A cell of a comparison that disturbs the others while these are timed: processes, threads, priorities, cores.

A byte in a shared file says whether the cell itself trains. Its helpers work while it does not. They end with the cell,
or after five minutes. Helpers that touch other processes touch those of the same comparison only.
"""

import mmap
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from torch import Tensor

from assay.config import ResolvedRun
from assay.step.program import Program, Step
from mutants.mutant import EVERY, Clock, Fault, Mutant

_HELPER = """
import mmap, os, signal, sys, time
import psutil

cell, parent = int(sys.argv[1]), int(sys.argv[2])
with open(sys.argv[3], "r+b") as file:
    trains = mmap.mmap(file.fileno(), 1)
end = time.monotonic() + 300

def others():
    mine = {{cell, os.getpid()}}
    found = psutil.Process(parent).children()
    return [one for one in found if one.pid not in mine and "assay" in " ".join(one.cmdline())]

{prepared}
while time.monotonic() < end and psutil.pid_exists(cell):
    if trains[0]:
        time.sleep(0.0005)
        continue
    {work}
"""

_SPIN = "x = sum(range(20_000))"
_DUTY = "x = sum(range({count}))\n    time.sleep({pause})"
_COPY = "target[:] = source"
_ARRAYS = "import numpy\nsource = numpy.ones(2**23); target = numpy.empty_like(source)"


class _Cell:
    """The shared byte of one cell: 1 while it trains."""

    def __init__(self) -> None:
        self.file = tempfile.NamedTemporaryFile(prefix="assay-mutant-")  # noqa: SIM115  # it lives as long as the cell
        self.file.write(b"\1")
        self.file.flush()
        self.trains = mmap.mmap(self.file.fileno(), 1)

    def told_by(self, program: Program, begin: Callable[[], object], clock: Clock) -> Program:
        """Return a program that tells this byte when it trains, and calls `begin` in the first faulty step."""
        begun: list[bool] = []

        def schedule(step: int) -> float:
            self.trains[0] = 1
            if clock.at(step) and not begun:
                begun.append(True)
                begin()
            return program.schedule(step)

        def update(step: Step) -> Tensor:
            norm = program.update(step)
            self.trains[0] = 0
            return norm

        return replace(program, schedule=schedule, update=update)


def _helped(work: str, prepared: str = "", count: int = 1, *, apart: bool = False) -> Fault:
    """Start `count` helpers that do `work` again and again while the cell does not train."""
    source = _HELPER.format(work=work, prepared=prepared)

    def fault(program: Program, run: ResolvedRun, clock: Clock) -> Program:
        cell = _Cell()

        def begin() -> None:
            command = [sys.executable, "-c", source, str(os.getpid()), str(os.getppid()), cell.file.name]
            for _ in range(count):
                subprocess.Popen(command, start_new_session=apart, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

        return cell.told_by(program, begin, clock)

    return fault


def _threaded(work: Callable[[], object]) -> Fault:
    """Do `work` in a thread of the cell's own process while the cell does not train."""

    def fault(program: Program, run: ResolvedRun, clock: Clock) -> Program:
        import time

        cell = _Cell()

        def run_on() -> None:
            end = time.monotonic() + 300
            while time.monotonic() < end:
                if cell.trains[0]:
                    time.sleep(0.0005)
                else:
                    work()

        return cell.told_by(program, threading.Thread(target=run_on, daemon=True).start, clock)

    return fault


def _product() -> object:
    square = np.ones((256, 256), np.float32)
    return square @ square


def _copied() -> object:
    return np.ones(2**22).copy()


def _each(action: str) -> str:
    return f"for one in others():\n        {action}\n    time.sleep(0.02)"


def _neighbour(name: str, says: str, fault: Fault, technique: str = "lion", begin: int = 4) -> Mutant:
    return Mutant(name, says, technique, fault, range(begin, EVERY.stop), 34)


_STOPPED = "os.kill(one.pid, signal.SIGSTOP); time.sleep(0.002); os.kill(one.pid, signal.SIGCONT)"

MUTANTS = (
    _neighbour("spinner", "A child process counts while the cell waits.", _helped(_SPIN)),
    _neighbour(
        "two spinners", "Two child processes count while the cell waits.", _helped(_SPIN, count=2), "fused_adamw"
    ),
    _neighbour("late spinner", "A child process begins to count in the middle of the run.", _helped(_SPIN), "sgd", 20),
    _neighbour(
        "spinner apart", "The counting process has a session of its own.", _helped(_SPIN, apart=True), "sdpa_attention"
    ),
    _neighbour(
        "spinner at low priority",
        "The counting process has the lowest priority.",
        _helped(_SPIN, "os.nice(19)"),
        "activation_checkpointing",
    ),
    _neighbour(
        "tenth of a core",
        "A child process counts for a tenth of the time.",
        _helped(_DUTY.format(count=20_000, pause=0.005)),
    ),
    _neighbour(
        "thirtieth of a core",
        "A child process counts for 3 % of the time.",
        _helped(_DUTY.format(count=20_000, pause=0.02)),
        "fused_adamw",
    ),
    _neighbour(
        "bandwidth", "A child process copies memory while the cell waits.", _helped(_COPY, _ARRAYS), "bf16_mixed"
    ),
    _neighbour(
        "bandwidth in bursts",
        "A child process copies memory in bursts.",
        _helped(_COPY + "\n    time.sleep(0.1)", _ARRAYS),
        "foreach_adamw",
    ),
    _neighbour("thread", "A thread of the cell multiplies matrices while the cell waits.", _threaded(_product), "lion"),
    _neighbour(
        "thread that copies", "A thread of the cell copies memory while the cell waits.", _threaded(_copied), "muon"
    ),
    _neighbour(
        "others are nicer",
        "The other cells get a lower priority.",
        _helped(_each("one.nice(max(10, one.nice()))")),
        "fused_adamw",
    ),
    _neighbour(
        "others share a core",
        "The other cells may use one core only.",
        _helped(_each("one.cpu_affinity([0])")),
        "sdpa_attention",
    ),
    _neighbour("others pause", "The other cells are stopped for 2 ms now and then.", _helped(_each(_STOPPED)), "lion"),
    _neighbour(
        "writer",
        "A child process writes to the disk while the cell waits.",
        _helped(
            "file.seek(0); file.write(octets); file.flush(); os.fsync(file.fileno())",
            "import tempfile\nfile = tempfile.TemporaryFile(); octets = bytes(2**22)",
        ),
        "sgd",
    ),
    _neighbour(
        "short processes",
        "Processes that end at once are started while the cell waits.",
        _helped("subprocess.run(['true'])", "import subprocess"),
        "activation_checkpointing",
    ),
)
