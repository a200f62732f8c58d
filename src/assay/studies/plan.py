"""How many cells can be alive at a time, and which: cells that take turns have to be in memory together.

One process of every row is alive at once where memory allows it, so that all of them see the same machine. Where it
does not, the cells are cut into waves. Figures are paired within a wave only, so every wave after the first brings a
fresh run of the baseline along; that costs runs and keeps the pairs honest. Where even two do not fit, cells run one
after another and nothing is paired in time.
"""

from collections.abc import Iterable, Sequence

import psutil

from assay.hardware import Machine
from assay.runs.prepare import ReadyRun
from assay.studies.design import AGAIN, BASELINE, Cell
from assay.units import format_bytes

PROCESS_BYTES = 512 * 2**20
"""What a measured process holds besides its tensors: interpreter, torch, the instruments, freed but kept memory."""

DEVICE_BYTES = 640 * 2**20
"""What a process takes of an accelerator before its first tensor: a CUDA context with its kernels."""

RESERVED = 1.5
"""Reserved over allocated memory of torch's caching allocator on an accelerator, at its worst in published runs."""

SHARE = 0.85
"""How much of what is free a comparison may count on."""

Wave = tuple[Cell, ...]


class Needs:
    """What each cell is predicted to hold, in the machine's memory and in the accelerator's."""

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
        """How many of the cells fit together, the largest first; at least one, and one where nothing is known."""
        if not self.known:
            return 1
        fitting = _fitting(self.host, SHARE * self.available_bytes)
        if self.device:
            fitting = min(fitting, _fitting(self.device, SHARE * self.device_bytes))
        return max(1, fitting)

    def note(self, resident: int) -> str | None:
        """A sentence on what could not be alive together; None where everything could."""
        if resident >= len(self.host):
            return None
        why = "how much memory they need is not known"
        if self.known:
            why = (
                f"together they need {format_bytes(sum(self.host))} of memory"
                + (f" and {format_bytes(sum(self.device))} of the device's" if self.device else "")
                + f", and {format_bytes(self.available_bytes)} is free"
            )
        how = f"{resident} at a time, each group with a baseline of its own" if resident > 1 else "one after another"
        lost = "" if resident > 1 else ", so their times are not paired"
        return f"The {len(self.host)} cells of a seed ran {how}{lost}: {why}."


def waves(cells: Sequence[Cell], resident: int) -> list[Wave]:
    """Cut the cells of each seed and process into groups alive together; each has a baseline if it has two cells."""
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
