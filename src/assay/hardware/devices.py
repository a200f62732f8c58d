"""Accelerators that can be bought or rented, as their makers specify them.

Peaks are of dense products: a datasheet's figure with sparsity is halved. 16-bit products add up in 32 bits, which on
consumer cards is half of the rate that is often printed. Memory is what the driver gives and what a program sees of it
(`hardware.memory`). Watts are the largest board power. A price changes from week to week and from place to place, so
none is here; commands take yours.
"""

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import PositiveFloat, PositiveInt

from assay.config.base import Frozen
from assay.errors import UsageError, among, shown
from assay.hardware.machine import SHEET, Accelerator, Machine, Rates
from assay.hardware.memory import MEMORY, MIB

LAUNCH_SECONDS = 5e-6
"""Seconds in which a host launches one kernel, as order of magnitude; no datasheet has it."""


class Device(Frozen):
    """One accelerator."""

    name: str
    driver_bytes: PositiveInt
    """Memory that the driver shows."""
    memory_bytes: PositiveInt
    """Memory that a program sees, before CUDA's context is taken from it."""
    memory_source: str
    bandwidth_bytes: PositiveFloat
    """Bytes per second to and from its own memory."""
    flops: Mapping[str, float]
    """Peak FLOP/s of dense products, by dtype; a multiply-add counts as two."""
    watts: PositiveFloat | None
    """Largest power of the board; None if the maker does not publish it."""
    year: int
    """Year in which it became available."""
    source: str
    capability: tuple[int, int] | None
    """CUDA compute capability; None if CUDA does not run on it."""
    multiprocessors: int | None
    """Number of its multiprocessors; None if CUDA does not run on it."""

    @property
    def half_flops(self) -> float:
        """Peak FLOP/s of 16-bit products: bfloat16, or float16 on devices without bfloat16."""
        return self.flops.get("bfloat16", self.flops["float16"])

    @property
    def ridge(self) -> float:
        """FLOPs of 16-bit products for each byte of memory traffic at which neither waits for the other."""
        return self.half_flops / self.bandwidth_bytes


class _Sheet(NamedTuple):
    """One line of the table: GB/s, TFLOP/s in float32, TF32 and 16 bits, watts, year."""

    name: str
    bandwidth: float
    float32: float | None
    tf32: float | None
    half: float
    watts: float | None
    year: int
    source: str
    capability: tuple[int, int] | None = None
    multiprocessors: int | None = None
    bfloat16: bool = True


def _device(key: str, sheet: _Sheet) -> Device:
    memory = MEMORY[key]
    flops = {"float32": sheet.float32, "tf32": sheet.tf32, "float16": sheet.half}
    if sheet.bfloat16:
        flops["bfloat16"] = sheet.half
    return Device(
        name=sheet.name,
        driver_bytes=memory.driver * MIB,
        memory_bytes=memory.visible * MIB,
        memory_source=memory.source,
        bandwidth_bytes=sheet.bandwidth * 1e9,
        flops={dtype: rate * 1e12 for dtype, rate in flops.items() if rate is not None},
        watts=sheet.watts,
        year=sheet.year,
        source=sheet.source,
        capability=sheet.capability,
        multiprocessors=sheet.multiprocessors,
    )


_V100, _T4, _A100 = "NVIDIA V100 datasheet, SXM2", "NVIDIA T4 datasheet", "NVIDIA A100 datasheet, SXM"
_GA102 = "NVIDIA Ampere GA102 whitepaper, appendix A"
_AD102, _GB202 = "NVIDIA Ada GPU architecture whitepaper, appendix A", "NVIDIA RTX Blackwell whitepaper, appendix A"

DEVICES: Mapping[str, Device] = {
    key: _device(key, sheet)
    for key, sheet in {
        "v100": _Sheet("V100 32 GB", 900, 15.7, None, 125, 300, 2018, _V100, (7, 0), 80, bfloat16=False),
        "t4": _Sheet("T4", 320, 8.1, None, 65, 70, 2018, _T4, (7, 5), 40, bfloat16=False),
        "l4": _Sheet("L4", 300, 30.3, 60, 121, 72, 2023, "NVIDIA L4 datasheet", (8, 9), 58),
        "l40s": _Sheet("L40S", 864, 91.6, 183, 362.05, 350, 2023, "NVIDIA L40S datasheet", (8, 9), 142),
        "a100-40gb": _Sheet("A100 40 GB", 1555, 19.5, 156, 312, 400, 2020, _A100, (8, 0), 108),
        "a100": _Sheet("A100 80 GB", 2039, 19.5, 156, 312, 400, 2020, _A100, (8, 0), 108),
        "h100": _Sheet("H100 80 GB", 3350, 67, 494.5, 989, 700, 2022, "NVIDIA H100 datasheet, SXM", (9, 0), 132),
        "h200": _Sheet("H200 141 GB", 4800, 67, 494.5, 989, 700, 2024, "NVIDIA H200 datasheet, SXM", (9, 0), 132),
        "b200": _Sheet("B200", 7700, 75, 1100, 2250, 1000, 2025, "NVIDIA Blackwell datasheet, HGX B200", (10, 0), 148),
        "rtx3090": _Sheet("RTX 3090", 936, 35.6, 35.6, 71, 350, 2020, _GA102, (8, 6), 82),
        "rtx4090": _Sheet("RTX 4090", 1008, 82.6, 82.6, 165.2, 450, 2022, _AD102, (8, 9), 128),
        "rtx5090": _Sheet("RTX 5090", 1792, 104.8, 104.8, 209.5, 575, 2025, _GB202, (12, 0), 170),
        "mi300x": _Sheet("MI300X", 5300, 163.4, 653.7, 1307.4, 750, 2023, "AMD Instinct MI300X datasheet"),
        "tpu-v5e": _Sheet("TPU v5e", 819, None, None, 197, None, 2023, "Google Cloud TPU v5e documentation"),
    }.items()
}
"""Accelerators by the name that a user gives."""


def device(name: str) -> Device:
    """Return the accelerator of a name. Raises `UsageError` if it is not known, with the names that are."""
    found = DEVICES.get(name.lower())
    if found is None:
        raise UsageError(f"no datasheet of a device {shown(name)} is known{among(name, DEVICES)}")
    return found


def sheet_rates(name: str) -> Rates:
    """Return the peaks of a device as rates, for a roofline that no step can be faster than.

    Raises `UsageError` if the name is not known.
    """
    found = device(name)
    return Rates(
        device="cuda",
        matmul_flops=found.flops,
        bandwidth_bytes=found.bandwidth_bytes,
        launch_seconds=LAUNCH_SECONDS,
        backward_launch_seconds=LAUNCH_SECONDS,
        threads=1,
        torch=SHEET,
        sheet=name.lower(),
    )


def absent_machine(name: str) -> Machine:
    """Return a machine with one GPU of this name, to predict a step; its rates are the peaks of the datasheet.

    Raises `UsageError` if the name is not known, and if CUDA does not run on the device.
    """
    found = device(name)
    if found.capability is None:
        raise UsageError(f"{found.name} does not run CUDA, so its allocator is not known; name a GPU of NVIDIA")
    gpu = Accelerator(
        name=found.name,
        memory_bytes=found.memory_bytes,
        compute_capability=found.capability,
        multiprocessors=found.multiprocessors,
    )
    return Machine(
        processor=found.name,
        cores=1,
        memory_bytes=found.memory_bytes,
        accelerators=(gpu,),
        rates={"cuda": sheet_rates(name)},
        absent=True,
    )
