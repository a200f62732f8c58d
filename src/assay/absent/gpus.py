"""GPUs that can be absent: what CUDA says about them, beside the figures of their datasheets."""

from collections.abc import Mapping
from typing import NamedTuple

from assay.cost.kernels import Gpu
from assay.errors import UsageError, among, short_text
from assay.hardware.devices import CONTEXT_BYTES, DEVICES, LIMITS, MIB, Device, ProcessorLimits

IN_PLACE = "ASSAY_ABSENT_NAME"
"""Variable of a process whose GPU is absent: the name of the one that it finds."""


def with_context(nbytes: int) -> tuple[int, int]:
    """Return the least and the most memory in use on a device of which the allocator holds `nbytes`."""
    return nbytes + CONTEXT_BYTES[0], nbytes + CONTEXT_BYTES[1]


class AbsentDevice(NamedTuple):
    """One GPU, as CUDA describes it."""

    name: str
    """Name that the driver reports."""
    sheet: Device
    l2_bytes: int
    bus_bits: int

    @property
    def capability(self) -> tuple[int, int]:
        """CUDA compute capability."""
        assert self.sheet.capability is not None
        return self.sheet.capability

    @property
    def multiprocessors(self) -> int:
        """Number of its multiprocessors."""
        assert self.sheet.multiprocessors is not None
        return self.sheet.multiprocessors

    @property
    def driver_bytes(self) -> int:
        """Memory that `nvidia-smi` shows."""
        return self.sheet.driver_bytes

    @property
    def visible_bytes(self) -> int:
        """Memory that torch sees, which is CUDA's total."""
        return self.sheet.memory_bytes

    @property
    def source(self) -> str:
        """Source of both figures of memory."""
        return self.sheet.memory_source

    @property
    def limits(self) -> ProcessorLimits:
        """Limits of its compute capability."""
        return LIMITS[self.capability]

    @property
    def gpu(self) -> Gpu:
        """Figures on which the memory of its kernels depends."""
        return Gpu(self.capability, self.multiprocessors, self.limits.threads)


ABSENT: Mapping[str, AbsentDevice] = {
    "a100": AbsentDevice("NVIDIA A100-SXM4-80GB", DEVICES["a100"], 40 * MIB, 5120),
    "a100-40gb": AbsentDevice("NVIDIA A100-SXM4-40GB", DEVICES["a100-40gb"], 40 * MIB, 5120),
    "h100": AbsentDevice("NVIDIA H100 80GB HBM3", DEVICES["h100"], 50 * MIB, 5120),
    "h200": AbsentDevice("NVIDIA H200", DEVICES["h200"], 60 * MIB, 6144),
    "rtx3090": AbsentDevice("NVIDIA GeForce RTX 3090", DEVICES["rtx3090"], 6 * MIB, 384),
    "rtx4090": AbsentDevice("NVIDIA GeForce RTX 4090", DEVICES["rtx4090"], 72 * MIB, 384),
    "rtx5090": AbsentDevice("NVIDIA GeForce RTX 5090", DEVICES["rtx5090"], 96 * MIB, 512),
    "l4": AbsentDevice("NVIDIA L4", DEVICES["l4"], 48 * MIB, 192),
    "t4": AbsentDevice("Tesla T4", DEVICES["t4"], 4 * MIB, 256),
}
"""GPUs by the name that a user gives."""


def absent_device(name: str) -> AbsentDevice:
    """Return the GPU of a name. Raises `UsageError` if it is not known, with the names that are."""
    found = ABSENT.get(name.lower())
    if found is None:
        raise UsageError(f"no absent GPU is called {short_text(name)}{among(name, ABSENT)}")
    return found


def description(device: AbsentDevice, count: int) -> dict[str, str]:
    """Return the variables from which the library of C learns the device (`c/device.c`)."""
    figures = {
        "count": count,
        "major": device.capability[0],
        "minor": device.capability[1],
        "multiprocessors": device.multiprocessors,
        "l2_bytes": device.l2_bytes,
        "bus_bits": device.bus_bits,
        "memory_bytes": device.visible_bytes,
        "context_bytes": CONTEXT_BYTES[0],
        **device.limits._asdict(),
    }
    # A space stands before each key, so that no key is found at the end of another.
    text = "".join(f" {key}={value}" for key, value in figures.items())
    return {"ASSAY_ABSENT_DEVICE": text, IN_PLACE: device.name}
