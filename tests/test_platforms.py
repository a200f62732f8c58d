"""What systems do differently: whole commands without what only Linux has, and the functions that hide the rest."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from assay import platforms

ELSEWHERE = Path(__file__).parent / "support" / "elsewhere"
TINY = ("model.n_layer=1", "model.n_embd=16", "model.n_head=2", "model.context_length=16", "training.batch_size=2")
LONGEST = 240
UNMEASURED = """
import assay.studies.execution.ready as ready
from assay.cli.main import main
from assay.hardware.rates import known_machine
ready.calibrate = lambda *given: {}
ready.measured_machine = lambda home, threads, tell: known_machine(home, threads)
main()
"""
"""The command; studies do not measure the machine and time no steps first, which takes a minute."""


def begun(home: Path, *words: str) -> "subprocess.Popen[str]":
    """Start a command on a home, on a system without what only Linux has."""
    environment = {**os.environ, "ASSAY_HOME": str(home), "PYTHONPATH": str(ELSEWHERE), "COLUMNS": "200"}
    command = [sys.executable, "-c", UNMEASURED, *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)


def said(home: Path, *words: str, code: int = 0) -> tuple[str, str]:
    """Run a command on such a system, and return its output and its messages."""
    with begun(home, *words) as process:
        out, err = process.communicate(timeout=LONGEST)
    assert process.returncode == code, out + err
    assert "Traceback" not in err, err
    return out, err


def test_the_stand_in_takes_away_what_only_linux_has(tmp_path: Path) -> None:
    """Otherwise the tests below would prove nothing."""
    program = "import assay.platforms as one; print(one.fcntl, one.HANG_UP, one.SIGNALS_STOP, one.LOCKS_ARE_INHERITED)"
    environment = {**os.environ, "PYTHONPATH": str(ELSEWHERE)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["None", "None", "False", "False"]


@pytest.mark.parametrize(
    "words",
    [
        ("estimate", "demo"),
        ("runs", "ls"),
        *(pytest.param(one, marks=pytest.mark.slow) for one in (("--help",), ("optimizations",))),
    ],
)
def test_commands_without_a_run_work(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert any(said(tmp_path / "home", *words))


def test_the_doctor_says_what_such_a_system_cannot_do(tmp_path: Path) -> None:
    told, _ = said(tmp_path / "home", "doctor", "--json")
    findings = {one["subject"]: one for one in json.loads(told)}
    assert findings["peak of a process"]["here"] is None
    assert "Windows cannot reset the peak" in findings["peak of a process"]["means"]


def test_a_run_trains_and_says_which_figures_are_missing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    result = json.loads(
        said(home, "train", "demo", *TINY, "training.steps=12", "--with", "sdpa_attention", "--json")[0]
    )
    assert result["status"] == "done"
    assert result["values"]["verdict"]
    memory, missing = result["memory"], result["missing"]
    assert memory["tensors_peak_bytes"] > 0
    assert (memory["process_peak_bytes"], memory["heap_peak_bytes"]) == (None, None)
    expected = {"memory.process_peak_bytes", "memory.heap_peak_bytes"}
    expected |= {f"blocks.{name}" for name in ("others_seconds", "load", "clock_hertz")}
    assert set(missing) == expected
    assert "only Linux has" in missing["memory.process_peak_bytes"]
    shown, _ = said(home, "runs", "show", "last")
    assert "not measured" in shown
    assert "/proc/self/status" in shown


@pytest.mark.slow
def test_ctrl_c_saves_a_run_and_a_second_process_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with begun(home, "train", "demo", *TINY, "training.steps=200000", "training.check_values=false") as run:
        try:
            wait_for(home, '"step"')
            (folder,) = (home / "runs").iterdir()
            assert "still running" in said(home, "train", "--resume", folder.name, code=2)[1]
            run.send_signal(signal.SIGINT)
            out, err = run.communicate(timeout=LONGEST)
        finally:
            run.kill()
    assert run.returncode == 130, out + err
    assert record(home)["status"] == "interrupted"
    assert list((folder / "checkpoints").glob("step-*"))


@pytest.mark.slow
def test_a_comparison_ends(tmp_path: Path) -> None:
    words = ("compare", "demo", *TINY, "training.steps=12", "--with", "sdpa_attention", "--seeds", "1", "--full")
    told, _ = said(tmp_path / "home", *words, "training.check_values=false")
    assert "1 of 1 call" in told
    assert "Not measured: process, peak" in told


def record(home: Path) -> dict[str, Any]:
    """The result of a home's only run."""
    from assay.files import open_file

    (file,) = home.glob("runs/*/result.json")
    found: dict[str, Any] = json.loads(open_file(file.read_bytes()))
    return found


def wait_for(home: Path, word: str) -> None:
    """Wait until the log of a home's only run has a word."""
    end = time.monotonic() + LONGEST
    while not any(word in log.read_text() for log in home.glob("runs/*/events.jsonl")):
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_lock_is_refused_to_others_and_ends_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("ab") as ours, path.open("ab") as theirs:
        platforms.lock(ours)
        with pytest.raises(BlockingIOError):
            platforms.lock(theirs)
        with pytest.raises(BlockingIOError):
            platforms.lock(theirs, shared=True)
    with path.open("rb") as one, path.open("rb") as other:
        platforms.lock(one, shared=True)
        platforms.lock(other, shared=True)


def test_a_descriptor_that_is_only_read_is_not_writable(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as out, path.open("rb") as read:
        number = read.fileno()
        assert platforms.writable(out.fileno())
        assert not platforms.writable(number)
    assert not platforms.writable(number)


def test_a_pipe_is_closed_once_nobody_holds_its_other_end() -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b"unread")
    assert not platforms.is_closed(ours)
    os.close(theirs)
    assert platforms.is_closed(ours)
    assert os.read(ours, 100) == b"unread"
    os.close(ours)


def test_a_process_and_those_that_it_started_are_killed() -> None:
    program = "import subprocess, sys, time; subprocess.Popen(['sleep', '60']); print('on', flush=True); time.sleep(60)"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, **platforms.own_session()) as process:
        assert process.stdout is not None
        process.stdout.readline()
        platforms.kill_group(process.pid)
        assert process.stdout.read() == b""  # the pipe closes when the second one has ended, too
    platforms.kill_group(process.pid)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_fork_returns_the_text_and_the_exit_code_of_its_work() -> None:
    long = "π" * 2**17  # more than a pipe holds
    assert platforms.read_fork(*platforms.fork_writer(lambda: (long, 3))) == (long, 3)

    def killed() -> tuple[str, int]:
        os.kill(os.getpid(), signal.SIGKILL)
        return "", 0

    assert platforms.read_fork(*platforms.fork_writer(killed)) == ("", -signal.SIGKILL)
    assert platforms.read_fork(*platforms.fork_writer(lambda: ("", 1 // 0))) == ("", 1)
