"""Figures of a predicted step on a GPU, each as `assay estimate` has it.

Where only bounds are known, the figure that is compared is the upper one. MFU is the model's own FLOPs for each second
over the peak of the dtypes in which the step multiplies (`hardware.devices`).
"""

from collections.abc import Callable
from typing import NamedTuple

from assay.cost.simulation.reserved import Interval
from assay.estimator import Estimate
from assay.estimator.device_memory import DeviceMemory, device_memory
from assay.estimator.memory_fit import fit_within
from assay.hardware.devices import peak_flops


class Figure(NamedTuple):
    """One figure of a step that rows are compared by."""

    name: str
    """Key in JSON, with its base unit."""
    title: str
    of: Callable[[Estimate], float | None]
    """Figure of a step; None if it is not predicted."""


def _requested(found: Estimate) -> float | None:
    """Return the most bytes that are requested at once; None of a captured graph, which requests its own pool once."""
    return None if found.cost.replayed else found.requested_bytes.high


REQUESTED = Figure("requested_peak_bytes", "requested", _requested)
SAVED = Figure("saved_bytes", "saved", lambda found: found.timeline.saved_bytes)
FLOPS = Figure("step_flops", "work", lambda found: found.step_flops)
SECONDS = Figure("step_seconds", "step time", lambda found: found.step_seconds)

COMPARED = (REQUESTED, SAVED, FLOPS, SECONDS)
"""Figures in the order in which they are shown."""
MEASURED = {"tensors_peak_bytes": REQUESTED, "step_seconds": SECONDS}
"""Figures by the metric that a run on a GPU measures of them; tensors and workspaces are one request to torch."""


class Held(NamedTuple):
    """Memory of one GPU in a step, and whether it fits."""

    reserved: Interval | None
    """Bytes that torch's allocator holds; None if a captured graph has a pool of its own."""
    in_use: Interval | None
    """Bytes that the allocator and the context of CUDA hold."""
    fit: str | None
    """Words on whether it fits; None if the bytes in use are not known."""


def held(found: Estimate) -> Held:
    """Return the memory of a step on the first GPU of its machine."""
    memory: DeviceMemory | None = device_memory(found)
    if memory is None or memory.total is None:
        return Held(None, None, None)
    there = found.machine.accelerators[0].memory_bytes
    return Held(memory.reserved, memory.total, fit_within(memory.total, there).verdict)


def utilization(found: Estimate) -> float | None:
    """Return the MFU of a step; None if its time or the peak of its device is not known."""
    peak = peak_flops(found.machine, found.machine.device(found.run.device), found.flops)
    seconds = found.step_seconds
    return None if peak is None or not seconds else found.model_flops / (seconds * peak)
