"""Clock, power, temperature and throttling of a GPU while a block is timed, as samples of `nvidia-smi`.

A process of its own takes the samples, so that the timed process does nothing for them. It takes its first sample
before the block begins, and that one does not count. Without `nvidia-smi`, as on an absent GPU, nothing is known.
"""

import select
import shutil
import statistics
import subprocess
from typing import NamedTuple

import torch

from assay.records.timing import GpuState

_QUERY = "clocks.sm,power.draw,temperature.gpu,clocks_throttle_reasons.active"
_MILLISECONDS = 200
_FIRST_SECONDS = 5.0
"""Time in which the first sample must come."""
_SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "temperature, by software",
    0x40: "temperature, by hardware",
    0x80: "power brake",
}
"""Reasons that slow a device beyond its power limit, by their bit (nvml.h, `nvmlClocksEventReason…`)."""


class Sample(NamedTuple):
    """One sample."""

    clock_hertz: float
    watts: float
    celsius: float
    reasons: int
    """Bits of the reasons for which the clock is not at its highest."""


class GpuSampler:
    """Samples one GPU between `begin` and `end`, and sums up what it has sampled."""

    def __init__(self, device: torch.device) -> None:
        self._device: torch.device | None = device if device.type == "cuda" else None
        self._process: subprocess.Popen[bytes] | None = None
        self._samples: list[Sample] = []

    def begin(self) -> None:
        """Start to sample, and wait for the first sample. If none comes, this GPU is not sampled again."""
        if self._device is None or (tool := shutil.which("nvidia-smi")) is None:
            return
        null, command = subprocess.DEVNULL, [tool, f"--id={_uuid(self._device)}", *_options()]
        self._process = subprocess.Popen(command, stdin=null, stdout=subprocess.PIPE, stderr=null, bufsize=0)
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], _FIRST_SECONDS)[0]:
            self.end()
            self._device = None

    def end(self) -> None:
        """Stop to sample."""
        if self._process is None:
            return
        self._process.terminate()
        printed, _ = self._process.communicate()
        self._process = None
        found = samples_of(printed.decode(errors="replace"))
        self._samples += found[1:] or found

    def state(self) -> GpuState | None:
        """Sum up the samples since the last call; None if there are none."""
        found, self._samples = self._samples, []
        if not found:
            return None
        return GpuState(
            clock_hertz=statistics.fmean(one.clock_hertz for one in found),
            watts=statistics.fmean(one.watts for one in found),
            celsius=max(one.celsius for one in found),
            slowed_by=tuple(name for bit, name in _SLOWDOWNS.items() if any(bit & one.reasons for one in found)),
        )


def samples_of(printed: str) -> list[Sample]:
    """Return the samples that `nvidia-smi` printed. A line without one of the figures is left out."""
    found = []
    for line in printed.splitlines():
        try:
            clock, watts, celsius, reasons = line.split(",")
            found.append(Sample(1e6 * float(clock), float(watts), float(celsius), int(reasons.strip(), 16)))
        except ValueError:
            continue
    return found


def _options() -> list[str]:
    return [f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits", f"--loop-ms={_MILLISECONDS}"]


def _uuid(device: torch.device) -> str:
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"
