"""Clock, power, temperature and throttling of a GPU while a block is timed, as samples of `nvidia-smi`.

A process of its own takes the samples, so that the timed process does nothing for them. Its start takes a tenth of a
second. So it starts once, before the first block, and goes on until `close`. What it samples between blocks does not
count. Without `nvidia-smi`, as on an absent GPU, nothing is known.
"""

import os
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


class GpuSample(NamedTuple):
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
        self._samples: list[GpuSample] = []
        self._first: list[GpuSample] = []
        """Sample before the first block, which counts only if that block has no other."""
        self._text = ""
        """End of what was read so far: a line that is not whole."""

    def begin(self) -> None:
        """Begin to count samples. The first time this waits for one. If none comes, this GPU is not sampled again."""
        if self._process is not None:
            self._read()
        elif self._device is not None and (tool := shutil.which("nvidia-smi")) is not None:
            null, command = subprocess.DEVNULL, [tool, f"--id={_uuid(self._device)}", *_options()]
            self._process = subprocess.Popen(command, stdin=null, stdout=subprocess.PIPE, stderr=null, bufsize=0)
            assert self._process.stdout is not None
            if select.select([self._process.stdout], [], [], _FIRST_SECONDS)[0]:
                self._first = self._read()
            else:
                self.close()
                self._device = None

    def end(self) -> None:
        """Count no more samples until the next `begin`."""
        if self._process is not None:
            found = self._read()
            # A first block may end before its second sample.
            self._samples += found or self._first
            self._first = []

    def close(self) -> None:
        """End the process that samples."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def _read(self) -> list[GpuSample]:
        """Return what was sampled since the last call."""
        assert self._process is not None
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while select.select([pipe], [], [], 0)[0] and (more := os.read(pipe, 2**16)):
            self._text += more.decode(errors="replace")
        whole, _, self._text = self._text.rpartition("\n")
        return samples_of(whole)

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


def samples_of(printed: str) -> list[GpuSample]:
    """Return the samples that `nvidia-smi` printed. A line without one of the figures is left out."""
    found = []
    for line in printed.splitlines():
        try:
            clock, watts, celsius, reasons = line.split(",")
            found.append(GpuSample(1e6 * float(clock), float(watts), float(celsius), int(reasons.strip(), 16)))
        except ValueError:
            continue
    return found


def _options() -> list[str]:
    return [f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits", f"--loop-ms={_MILLISECONDS}"]


def _uuid(device: torch.device) -> str:
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"
