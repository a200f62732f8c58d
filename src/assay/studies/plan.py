"""Division of cells into waves: cells that take turns must fit in memory together.

One process of every row is alive at once if memory permits it, so that all of them see the same machine. Otherwise the
cells are cut into waves. Figures are paired only within a wave. So every wave after the first has a further run of the
baseline, which costs runs and keeps the pairs fair. If not even two cells fit, cells run one after another, and nothing
is paired in time.
"""

from collections.abc import Iterable, Sequence

import psutil

from assay.executors.base import Wave
from assay.hardware import Machine
from assay.launch.prepare import ReadyRun
from assay.records.study import AGAIN, BASELINE, Cell
from assay.units import format_bytes

PROCESS_BYTES = 512 * 2**20
"""Memory of a measured process besides its tensors: interpreter, torch, instruments, memory freed but kept."""

DEVICE_BYTES = 640 * 2**20
"""Device memory of a process before its first tensor: a CUDA context with its kernels."""

RESERVED = 1.5
"""Reserved over allocated memory of torch's caching allocator on an accelerator, at its worst in published runs."""

SHARE = 0.85
"""Share of the free memory that a comparison may use."""


class Needs:
    """Predicted bytes of each cell in host memory and in the accelerator's memory."""

    def __init__(self, ready: Iterable[ReadyRun], machine: Machine) -> None:
        runs = list(ready)
        peaks = [one.predicted.tensors_peak_bytes if one.predicted else None for one in runs]
        self.known = None not in peaks
        self.available_bytes = min(psutil.virtual_memory().available, machine.memory_bytes)
        tensors = [peak or 0 for peak in peaks]
        on_device = [machine.device(one.run.device) == "cuda" for one in runs]
        self.host = [PROCESS_BYTES + (0 if gpu else held) for held, gpu in zip(tensors, on_device, strict=True)]
        self.device = [
            round(DEVICE_BYTES + RESERVED * held) for held, gpu in zip(tensors, on_device, strict=True) if gpu
        ]
        self.device_bytes = min((one.memory_bytes for one in machine.accelerators), default=0)

    def resident(self) -> int:
        """Number of cells that fit together, counted from the largest; at least 1, and 1 if a prediction is missing."""
        if not self.known:
            return 1
        fitting = _fitting(self.host, SHARE * self.available_bytes)
        if self.device:
            fitting = min(fitting, _fitting(self.device, SHARE * self.device_bytes))
        return max(1, fitting)

    def note(self, resident: int) -> str | None:
        """A sentence on the cells that could not be alive together; None if all could."""
        if resident >= len(self.host):
            return None
        why = "their memory need is not known"
        if self.known:
            why = (
                f"together they need {format_bytes(sum(self.host))} of memory"
                + (f" and {format_bytes(sum(self.device))} of device memory" if self.device else "")
                + f", and {format_bytes(self.available_bytes)} is free"
            )
        how = f"{resident} at a time, each group with a baseline of its own" if resident > 1 else "one after another"
        lost = "" if resident > 1 else ", so their times are not paired"
        return f"The {len(self.host)} runs of a seed ran {how}{lost}: {why}."


def waves(cells: Sequence[Cell], resident: int) -> list[Wave]:
    """Cut the cells of each seed and process into waves; a wave of several cells has a baseline."""
    groups: dict[tuple[int, int], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.seed, cell.process), []).append(cell)
    return [wave for group in groups.values() for wave in _cut(group, resident)]


def _cut(cells: Sequence[Cell], resident: int) -> list[Wave]:
    if resident >= len(cells):
        return [tuple(cells)]
    if resident == 1:
        return [(cell,) for cell in cells]
    baseline = next(cell for cell in cells if cell.treatment == BASELINE)
    rest, size = cells[resident:], resident - 1
    groups = [rest[at : at + size] for at in range(0, len(rest), size)]
    taken = sum(cell.treatment in (BASELINE, AGAIN) for cell in cells)
    return [tuple(cells[:resident])] + [
        (baseline.repeated(taken + number), *group) for number, group in enumerate(groups)
    ]


def _fitting(needs: Sequence[int], available: float) -> int:
    total, count = 0, 0
    for need in sorted(needs, reverse=True):
        total += need
        if total > available:
            break
        count += 1
    return count
