"""Findings of the observer so far, and the file that it writes."""

import json
import os
import sys
import time
from typing import Any

from .loaded_library import Library
from .process_groups import CollectiveCalls
from .script_lines import place_now
from .step_operators import StepOperators

_PEAKS = ("requested_bytes", "allocated_bytes", "reserved_bytes")
_SECONDS = 2
"""Seconds between two files that are written while the script goes on."""
_MOST_EXHAUSTED = 20
"""Most refused requests of memory that are kept."""


class ObserverFindings:
    """Peaks, steps, reads and the end of one process."""

    def __init__(self, library: Library, collectives: CollectiveCalls) -> None:
        self.library, self.collectives = library, collectives
        self._is_fork = False
        self._clear()

    def _clear(self) -> None:
        self.process = os.getpid()
        self._began = time.time_ns()
        self.steps: list[dict[str, int]] = []
        """Counts of each step of the first optimizer."""
        self.step_count = 0
        self.optimizers = 0
        self.sites: dict[tuple[str, int, str, str], dict[str, Any]] = {}
        """Reads by line, operator and kind."""
        self.unknown: dict[tuple[str, str, int], dict[str, Any]] = {}
        self.exhausted: list[dict[str, Any]] = []
        self.operators = StepOperators()
        self.ended: dict[str, Any] = {"how": "running"}
        self.refused: str | None = None
        self._uses_cuda = False
        self._before_reset: dict[int, dict[str, int]] = {}
        self._written = 0.0

    def begin_fork(self) -> None:
        """Start anew, because this process is a fork now. It writes a file only if it uses the device."""
        self._clear()
        self._is_fork = True

    def follow_torch(self) -> None:
        """Learn when CUDA starts, when memory is exhausted, and when a peak is reset."""
        import torch

        torch.cuda._lazy_call(self._cuda_starts)  # type: ignore[no-untyped-call]
        reset = torch._C._cuda_resetPeakMemoryStats

        def remembered(device: int) -> None:
            self._before_reset[int(device)] = self._peaks(int(device))
            reset(device)

        torch._C._cuda_resetPeakMemoryStats = remembered

    def _set_architecture(self, compiled: str) -> None:
        """Choose the newest architecture of torch's kernels that the device runs, which has its major version."""
        described = dict(one.split("=") for one in os.environ.get("ASSAY_ABSENT_DEVICE", "").split())
        device = 10 * int(described.get("major", 0)) + int(described.get("minor", 0))
        known = [int(one[3:]) for one in compiled.split() if one.startswith("sm_") and one[3:].isdigit()]
        fitting = [one for one in known if one // 10 == device // 10 and one <= device]
        if fitting:
            self.library.set_architecture(max(fitting))
        elif known:
            self.refused = f"a torch without kernels for this device (it has {compiled})"

    def _cuda_starts(self) -> None:
        """Refuse an allocator that does not count. Before this, torch must not be asked: it would forbid forks."""
        import torch

        self._uses_cuda = True
        self._set_architecture(torch._C._cuda_getArchFlags() or "")
        backend = torch.cuda.get_allocator_backend()
        if backend == "native":
            torch._C._cuda_attach_out_of_memory_observer(self._exhausted)  # type: ignore[attr-defined]
        else:
            self.refused = f"the allocator {backend}"
        self.write()  # a process that is killed before its first step has a file, too

    def _exhausted(self, device: int, wanted: int, allocated: int, free: int) -> None:
        if len(self.exhausted) < _MOST_EXHAUSTED:
            self.exhausted.append({"device": device, "wanted_bytes": wanted, "step": self.step_count, **place_now()})

    def _peaks(self, device: int) -> dict[str, int]:
        """Highest figures of one device since the start, across resets."""
        import torch

        stats = torch.cuda.memory_stats(device)
        now = {name: int(stats.get(f"{name}.all.peak", 0)) for name in _PEAKS}
        earlier = self._before_reset.get(device, {})
        return {name: max(value, earlier.get(name, 0)) for name, value in now.items()}

    def devices(self) -> list[dict[str, Any]]:
        """Peaks of each device that was used."""
        torch = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
            return []
        found = []
        for device in range(torch.cuda.device_count()):
            peaks = self._peaks(device)
            if peaks["reserved_bytes"] or self.library.most_used(device):
                total = torch.cuda.get_device_properties(device).total_memory
                one = {"device": device, **peaks, "given_out_bytes": self.library.most_used(device)}
                given_back = int(torch.cuda.memory_stats(device).get("num_device_free", 0))
                found.append({**one, "total_bytes": total, "given_back": given_back})
        return found

    def content(self) -> dict[str, Any]:
        """Return all findings as plain data."""
        torch = sys.modules.get("torch")
        return {
            "process": self.process,
            "torch": str(getattr(torch, "__version__", "")),
            "devices": self.devices(),
            "counts": self.library.counts(),
            "steps": self.step_count,
            "optimizers": self.optimizers,
            "by_step": self.steps,
            "reads": list(self.sites.values()),
            "unknown": list(self.unknown.values()),
            "exhausted": self.exhausted,
            "collectives": self.collectives.content(),
            "operators": self.operators.content(),
            "timed": self.operators.wanted,
            "ended": self.ended,
            "refused": self.refused,
        }

    def write(self, *, may_wait: bool = False) -> None:
        """Write the file; with `may_wait` only if the last one is older than two seconds."""
        waits = may_wait and time.monotonic() - self._written < _SECONDS
        if waits or os.getpid() != self.process or (self._is_fork and not self._uses_cuda):
            return
        folder = os.environ.get("ASSAY_ABSENT_FOUND", "")
        path = os.path.join(folder, f"{self.process}-{self._began}.json")  # a program may replace itself by another
        made = f"{path}.making"
        with open(made, "w", encoding="utf-8") as stream:
            json.dump(self.content(), stream)
        os.replace(made, path)
        self._written = time.monotonic()
