"""Waves as tasks of Ray: on a local cluster, or on an existing one at the address in `RAY_ADDRESS`.

All machines share the home. A task only supervises the process of its wave, so a run inside Ray has the memory of one
outside. Ray restarts no task: a wave whose process has died is left for `assay study resume`. The study's folder is the
record, and nothing is read from Ray afterwards. Cells that are timed get a machine of their own.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from assay.errors import UsageError
from assay.executors.base import Work
from assay.executors.elsewhere import LEASHED, Elsewhere, WaveFiles, is_installed
from assay.platforms import STOPPING


class Ray(Elsewhere):
    """Runs each wave as a task of Ray."""

    name: ClassVar[str] = "ray"

    def check(self) -> None:
        """Raise `UsageError` if Ray is not installed."""
        if not is_installed("ray"):
            raise UsageError("the executor ray needs the package ray: pip install 'assay[ray]'")

    def open(self, work: Work) -> int:
        """Connect to the cluster, or start one on this machine; returns how many waves fit at once."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        self._ray: Any = ray
        self._started = not ray.is_initialized()
        if self._started:
            self._connect()
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        self._cores = int(min(node["Resources"].get("CPU", 1) for node in nodes))
        return len(nodes) if work.blocks else int(sum(node["Resources"].get("CPU", 1) for node in nodes))

    def _connect(self) -> None:
        try:
            with _own_signals():
                self._ray.init(log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
        except ConnectionError as error:
            told = str(error).splitlines()[0]
            raise UsageError(
                f"no Ray cluster can be joined: {told}; start it, unset RAY_ADDRESS to have one on this machine, "
                "or give the token that it asks for (RAY_AUTH_TOKEN)"
            ) from error

    def submit(self, files: WaveFiles, cores: int) -> "_Task":
        """Submit a wave as a task, which is not retried."""
        options = {"num_cpus": cores or self._cores, "max_retries": 0, "max_calls": 1}
        task = self._ray.remote(**options)(_supervise)
        return _Task(self._ray, task.remote([*files.command, LEASHED], list(sys.path)))

    def close(self) -> None:
        """Leave the cluster, and end it if it was started here."""
        if self._started:
            self._ray.shutdown()


class _Task:
    """A task in flight."""

    def __init__(self, ray: Any, reference: Any) -> None:
        self._ray, self._reference = ray, reference

    def alive(self) -> bool:
        """True until the task has ended."""
        return not self._ray.wait([self._reference], timeout=0)[0]

    def cancel(self) -> None:
        """Kill the task; its process ends with its standard input."""
        self._ray.cancel(self._reference, force=True)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Restore the handlers of signals afterwards: Ray's would end this process without saving."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _supervise(command: list[str], path: list[str]) -> int:
    """Run the process of a wave until it ends. Ray limits a worker to one thread; the process has its own setting."""
    surroundings = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    surroundings["PYTHONPATH"] = os.pathsep.join(one for one in path if one)
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=surroundings) as process:
        return process.wait()
