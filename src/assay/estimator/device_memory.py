"""Memory around a step's tensors: what libraries, the allocator and the driver or the interpreter take.

On a GPU:

- *Working storage* is what cuBLAS and cuBLASLt keep for their products, for each of two threads, from torch's own
  allocator (`cost.gpu_kernels`).
- *Reserved* is what the caching allocator holds for tensors and working storage (`cost.simulation.reserved`).
- The *context* of CUDA has the driver's structures and the kernels that were loaded (`hardware.devices`). Kernels are
  loaded when they are first used. One process on an older CUDA took 287,047,680 bytes, and 666,632,192 with all of
  torch's kernels (pytorch/pytorch#86509). An RTX 6000 Ada took 426 MiB before its first kernel, with CUDA 13
  (unslothai/unsloth-zoo#1053). No maker publishes it by device, so what an H200 took counts for all of them. NCCL's
  buffers are left out.

On a CPU the *started process* is the interpreter, torch and this package: anonymous memory without tensors. The runs of
the README held 230 to 238 MiB (torch 2.13, x86). Code that oneDNN generates for products in 16 bits took up to 25 MiB
more. Memory that malloc keeps after a free is left out. A program that trains has objects of its own, such as modules
and nodes of the graph, and malloc's heap has gaps between small tensors. In four limited processes both together took
0.5 to 1.6 MiB; 2 MiB are counted.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

from assay.cost.gpu_kernels import cublas_workspace
from assay.cost.simulation.reserved import Interval, kept_workspaces, reserved_bytes
from assay.cost.step_cost import Cost
from assay.errors import UsageError, among, short_text
from assay.estimator.estimate import Estimate
from assay.hardware import Machine
from assay.hardware.devices import CONTEXT_BYTES

Of = Literal["tensors", "process", "device"]
OF: tuple[Of, ...] = ("tensors", "process", "device")

_MIB = 2**20
CONTEXT = Interval(*CONTEXT_BYTES)
STARTED = Interval(230 * _MIB, 263 * _MIB)
OBJECTS = 2 * _MIB
_LEAST, _MOST = (8, 0), (9, 0)
"""Capabilities with the smallest and with the largest workspaces."""


@dataclass(frozen=True)
class DeviceMemory:
    """Memory of a GPU in a training, by who takes it."""

    working: Interval
    """Working storage of libraries; it is among the reserved bytes."""
    reserved: Interval | None
    """Held by torch's caching allocator; None if a captured graph has a pool of its own."""
    context: Interval

    @property
    def total(self) -> Interval | None:
        """Bytes in use on the device; None if the reserved ones are not known."""
        return None if self.reserved is None else self.reserved.plus(self.context)


def device_memory(found: Estimate) -> DeviceMemory | None:
    """Return the memory of a GPU in a training; None on a CPU."""
    if found.machine.device(found.run.device) != "cuda":
        return None
    working = working_storage(found)
    return DeviceMemory(working, reserved_bytes(found.cost, working, found.composed.requests), CONTEXT)


def device_memory_values(found: Estimate) -> dict[str, dict[str, int] | None] | None:
    """Return the same as plain values for JSON, each with ``low`` and ``high``; None on a CPU."""
    memory = device_memory(found)
    if memory is None:
        return None
    parts = {"working": memory.working, "reserved": memory.reserved, "context": memory.context, "total": memory.total}
    return {f"{name}_bytes": None if one is None else asdict(one) for name, one in parts.items()}


def working_storage(found: Estimate) -> Interval:
    """Return the bytes that libraries keep, or on a CPU take for a moment, in addition to tensors."""
    if found.machine.device(found.run.device) != "cuda":
        return Interval(0, found.library_scratch_bytes or 0)
    return working_storage_of_gpu(found.cost, found.machine)


def working_storage_of_gpu(cost: Cost, machine: Machine) -> Interval:
    """Return the bytes that libraries keep on the first accelerator of a machine, between bounds if it is not known."""
    least, most = _capabilities(machine)
    return Interval(kept_workspaces(cost, least), kept_workspaces(cost, most))


def _capabilities(machine: Machine) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the capabilities with the smallest and the largest workspaces that the first accelerator may have."""
    capability = next((one.compute_capability for one in machine.accelerators), None)
    return (capability, capability) if capability else (_LEAST, _MOST)


def need_of(of: str) -> Callable[[Estimate], int]:
    """Return the function that counts what a budget limits, for a rank: of tensors, of the process, or of the device.

    Raises `UsageError` for another word.
    """
    needs: dict[str, Callable[[Estimate], int]] = {"tensors": _tensors, "process": _process, "device": _device}
    if of not in needs:
        raise UsageError(f"memory is that of tensors, process or device, and not of {short_text(of)}{among(of, OF)}")
    return needs[of]


def least_around(of: str, machine: Machine, *, on_gpu: bool) -> int:
    """Return the bytes that a need has at least beyond those of tensors as an allocator serves them."""
    if on_gpu:
        # Both threads multiply in every step.
        return CONTEXT.high + 2 * cublas_workspace(_capabilities(machine)[0]) if of == "device" else 0
    return OBJECTS + (STARTED.high if of == "process" else 0)


def _tensors(found: Estimate) -> int:
    return found.most_bytes + (OBJECTS if found.machine.device(found.run.device) == "cpu" else 0)


def _process(found: Estimate) -> int:
    if found.machine.device(found.run.device) == "cuda":
        raise UsageError("the tensors of a GPU are not in the process's memory; use --of tensors or --of device")
    return _tensors(found) + STARTED.high


def _device(found: Estimate) -> int:
    memory = device_memory(found)
    if memory is None:
        raise UsageError("a CPU has no memory of its own; use --of process, or name a GPU with --device")
    if memory.total is None:
        raise UsageError("captured graphs have a pool of their own, which is not predicted; use --of tensors")
    return memory.total.high
