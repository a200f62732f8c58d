"""GPUs that can be absent: what CUDA says about them.

The memory of a device has three figures. A datasheet counts 80 GB. The driver (`nvidia-smi`) shows what is left after
error correction and firmware. CUDA, and so torch, sees a little less again, which differs by some 100 MB between
versions of the driver. Where a public listing has what torch saw, that figure is taken; otherwise the driver's.
"""

from collections.abc import Mapping
from typing import NamedTuple

from assay.cost.kernels import Gpu
from assay.errors import UsageError, among, shown
from assay.hardware.devices import DEVICES
from assay.hardware.limits import LIMITS, Limits

MIB = 2**20
CONTEXT_BYTES = (700_000_000, 790_000_000)
"""Least and most bytes of a CUDA context with torch's kernels: three runs on one H200, torch 2.11.0+cu130."""


def with_context(nbytes: int) -> tuple[int, int]:
    """Return the least and the most memory in use on a device of which the allocator holds `nbytes`."""
    return nbytes + CONTEXT_BYTES[0], nbytes + CONTEXT_BYTES[1]


class AbsentDevice(NamedTuple):
    """One GPU, as CUDA describes it."""

    name: str
    """Name that the driver reports."""
    capability: tuple[int, int]
    multiprocessors: int
    driver_bytes: int
    """Memory that `nvidia-smi` shows."""
    visible_bytes: int
    """Memory that torch sees, which is CUDA's total."""
    l2_bytes: int
    bus_bits: int
    source: str
    """Source of both figures of memory."""

    @property
    def limits(self) -> Limits:
        """Limits of its compute capability."""
        return LIMITS[self.capability]

    @property
    def gpu(self) -> Gpu:
        """Figures on which the memory of its kernels depends."""
        return Gpu(self.capability, self.multiprocessors, self.limits.threads)


def _processors(name: str) -> tuple[tuple[int, int], int]:
    """Return the capability and the number of multiprocessors of a datasheet."""
    sheet = DEVICES[name]
    assert sheet.capability is not None
    assert sheet.multiprocessors is not None
    return sheet.capability, sheet.multiprocessors


_SEEN = "nvidia-smi; total_memory as torch printed it in public listings"
ABSENT: Mapping[str, AbsentDevice] = {
    "a100": AbsentDevice(
        "NVIDIA A100-SXM4-80GB",
        *_processors("a100"),
        81920 * MIB,
        81049 * MIB,
        40 * MIB,
        5120,
        "nvidia-smi; mixbench issue 47",
    ),
    "a100-40gb": AbsentDevice(
        "NVIDIA A100-SXM4-40GB",
        *_processors("a100-40gb"),
        40960 * MIB,
        40339 * MIB,
        40 * MIB,
        5120,
        "nvidia-smi; bottlerocket PR 3873",
    ),
    "h100": AbsentDevice(
        "NVIDIA H100 80GB HBM3", *_processors("h100"), 81559 * MIB, 81089 * MIB, 50 * MIB, 5120, _SEEN
    ),
    "h200": AbsentDevice(
        "NVIDIA H200",
        *_processors("h200"),
        143771 * MIB,
        143771 * MIB,
        60 * MIB,
        6144,
        "nvidia-smi; torch saw no less on one H200",
    ),
    "rtx3090": AbsentDevice(
        "NVIDIA GeForce RTX 3090",
        *_processors("rtx3090"),
        24576 * MIB,
        24268 * MIB,
        6 * MIB,
        384,
        "nvidia-smi; torch's error in GaoLii/DSP issue 10, 23.70 GiB",
    ),
    "rtx4090": AbsentDevice(
        "NVIDIA GeForce RTX 4090",
        *_processors("rtx4090"),
        24564 * MIB,
        24207 * MIB,
        72 * MIB,
        384,
        "nvidia-smi; torch's error in ali-vilab/VGen issue 104, 23.64 GiB",
    ),
    "rtx5090": AbsentDevice(
        "NVIDIA GeForce RTX 5090",
        *_processors("rtx5090"),
        32607 * MIB,
        32117 * MIB,
        96 * MIB,
        512,
        "nvidia-smi; deviceQuery in a public listing",
    ),
    "l4": AbsentDevice(
        "NVIDIA L4",
        *_processors("l4"),
        23034 * MIB,
        22558 * MIB,
        48 * MIB,
        192,
        "nvidia-smi; torch's error in ArcInstitute/evo2 issue 190, 22.03 GiB",
    ),
    "t4": AbsentDevice(
        "Tesla T4",
        *_processors("t4"),
        15360 * MIB,
        14909 * MIB,
        4 * MIB,
        256,
        "nvidia-smi; torch's error in Zheng-Chong/CatVTON issue 133, 14.56 GiB",
    ),
}
"""GPUs by the name that a user gives."""


def absent_device(name: str) -> AbsentDevice:
    """Return the GPU of a name. Raises `UsageError` if it is not known, with the names that are."""
    found = ABSENT.get(name.lower())
    if found is None:
        raise UsageError(f"no absent GPU is called {shown(name)}{among(name, ABSENT)}")
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
    return {"ASSAY_ABSENT_DEVICE": text, "ASSAY_ABSENT_NAME": device.name}
