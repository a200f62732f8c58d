"""A child that is forked from the server has the record of one that has imported everything itself."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.config import Home
from assay.data import Prepared
from assay.launch.forked import ForkServer
from assay.launch.spawn import environment, fork_server
from assay.records.run import RunResult
from assay.records.status import Status
from assay.store import history
from assay.store.run_folder import RunFolder
from assay.worker.processes import fork_server as fork_server_module
from support.runs import run_folder
from support.workers import finished

OF_A_PROCESS = {"run", "phase_seconds", "blocks", "first_step_seconds", "step_seconds", "tokens_per_second"}
"""Fields that are times, or have some."""
UNTIMED = ("--turns", "0")
STACKS = (("sdpa_attention", "bf16_mixed", "activation_checkpointing"), ("muon", "gradient_accumulation"))


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with fork_server(Home()) as found:
        yield found


def test_a_process_without_a_gpu_has_not_started_cuda() -> None:
    assert not fork_server_module.uses_cuda()


def forked(server: ForkServer, folder: RunFolder) -> tuple[int, RunResult]:
    with folder.log_file.open("ab") as log, folder.lock_file.open("ab") as lock:
        process = server.fork([str(folder.path), *UNTIMED], log, lock)
    assert process is not None
    with process.stdin, process.stdout as said:
        assert list(said)
        code = process.wait(30.0)
    result = folder.result()
    assert result is not None, folder.log_file.read_text()
    return code, result


def content(folder: RunFolder, result: RunResult) -> dict[str, Any]:
    """All of a record that has no time and no resident memory, with each step's figures."""
    found = result.model_dump(exclude=OF_A_PROCESS | {"data_wait_share", "epoch_seconds"})
    found["notes"] = [one for one in found.get("notes", ()) if " passed between the " not in one]
    for name in ("phases", "process_peak_bytes"):
        del found["memory"][name]
    if found["values"] is not None:
        for name in ("process_seconds", "seconds", "baseline_steps", "replay_baseline_steps"):
            del found["values"][name]
    steps = history.steps(folder.events())
    return {**found, "curve": [(one.loss, one.log_gradient_norm, one.activation_norms) for one in steps]}


@pytest.mark.parametrize("stack", [STACKS[0], pytest.param(STACKS[1], marks=pytest.mark.slow)], ids="+".join)
def test_its_record_is_that_of_a_started_one(
    server: ForkServer, corpus: Prepared, tmp_path: Path, stack: tuple[str, ...]
) -> None:
    training = {"steps": 4, "measure_memory": True}
    # What a child does stays in it, so one that is forked after others is equal, too.
    names = ("one", "other") if stack == STACKS[0] else ("one", "other", "again")
    one, *others = (run_folder(tmp_path / name, corpus, training, optimizations=list(stack)) for name in names)
    code, started = finished(one, *UNTIMED, start=subprocess.Popen, env=environment(Home()))
    assert (code, started.status) == (0, Status.DONE)
    for folder in others:
        code, result = forked(server, folder)
        assert code == 0
        assert (history.was_forked(folder.events()), history.was_forked(one.events())) == (True, False)
        assert content(folder, result) == content(one, started)
        assert result.memory.phases.keys() == started.memory.phases.keys()


def test_its_exit_code_is_that_of_its_status(server: ForkServer, corpus: Prepared, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", corpus, {"steps": 3, "learning_rate": 1e30, "gradient_clip": 0.0})
    code, result = forked(server, folder)
    assert result.status is Status.DIVERGED
    assert code == Status.DIVERGED.exit_code


def test_it_lives_on_when_nobody_asks_the_server_any_more(corpus: Prepared, tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", corpus, {"steps": 60})
    with fork_server(Home()) as server, folder.log_file.open("ab") as log, folder.lock_file.open("ab") as lock:
        process = server.fork([str(folder.path)], log, lock)
    assert process is not None
    with process.stdin, process.stdout as said:
        assert list(said)
    result = folder.result()
    assert result is not None
    assert (result.status, result.steps) == (Status.DONE, 60)


def test_a_fork_that_fails_costs_one_child_and_not_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError("too many processes")

    monkeypatch.setattr(os, "fork", refuse)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reply, given = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, reply, open(os.devnull, "rb") as nothing:
        with given:
            socket.send_fds(ours, [b"[]"], [*[nothing.fileno()] * 4, given.fileno()])
        ours.shutdown(socket.SHUT_WR)
        assert fork_server_module.serve_requests(theirs) is None
        reply.settimeout(5.0)
        assert reply.recv(8) == b"0", "the parent is told that there is no child"


def test_children_do_not_share_the_numbers_of_numpys_global_generator() -> None:
    before = np.random.get_state()
    try:
        drawn = set()
        for _ in range(3):
            np.random.set_state(before)
            fork_server_module.draw_anew()
            drawn.add(float(np.random.random()))
        assert len(drawn) == 3
    finally:
        np.random.set_state(before)
