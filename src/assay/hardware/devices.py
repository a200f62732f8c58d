"""Accelerators that can be bought or rented, as their makers specify them.

Peaks are of dense products: a datasheet's figure with sparsity is halved. 16-bit products add up in 32 bits, which on
consumer cards is half of the rate that is often printed. Watts are the largest board power. A price changes from week
to week and from place to place, so none is here; commands take yours.

A datasheet's figure of memory is a name. The driver (`nvidia-smi`) shows what is left after error correction and
firmware. CUDA's total, which torch prints, is less again by 0.2 to 3 %, and differs by some 100 MB between versions of
the driver. Where public listings differ, the smaller figure is taken. A step has this total less a context, of which
the largest is subtracted where a step must fit. Limits of multiprocessors are those of the CUDA C++ Programming Guide.

The model FLOPs utilization (MFU) is a share of a device's peak, which is that of the dtypes in which a step multiplies.
A GPU's peaks are those of its datasheet, as in PaLM (arXiv:2204.02311, appendix B). A datasheet belongs to one form of
a device: an H100 on a PCIe card has another peak than one on an SXM board. So the driver's name may have no word that
is not listed here, and the peak of any other device is unknown. No datasheet has the rate of a CPU with its clock under
load, so a CPU's peaks are the rates that `assay machine` measured.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import PositiveFloat, PositiveInt

from assay.config.base import Frozen
from assay.errors import UsageError, among, short_text
from assay.hardware.detect import SHEET, Accelerator, Machine, Rates

KIB = 2**10


class ProcessorLimits(NamedTuple):
    """Limits of one multiprocessor."""

    threads: int
    blocks: int
    shared_bytes: int
    shared_optin_bytes: int
    """Most shared memory of one block."""


LIMITS: Mapping[tuple[int, int], ProcessorLimits] = {
    (7, 0): ProcessorLimits(2048, 32, 96 * KIB, 96 * KIB),
    (7, 5): ProcessorLimits(1024, 16, 64 * KIB, 64 * KIB),
    (8, 0): ProcessorLimits(2048, 32, 164 * KIB, 163 * KIB),
    (8, 6): ProcessorLimits(1536, 16, 100 * KIB, 99 * KIB),
    (8, 9): ProcessorLimits(1536, 24, 100 * KIB, 99 * KIB),
    (9, 0): ProcessorLimits(2048, 32, 228 * KIB, 227 * KIB),
    (10, 0): ProcessorLimits(2048, 32, 228 * KIB, 227 * KIB),
    (12, 0): ProcessorLimits(1536, 24, 100 * KIB, 99 * KIB),
}
"""Limits by compute capability."""


MIB = 2**20
CONTEXT_BYTES = (700_000_000, 790_000_000)
"""Least and most bytes of a CUDA context with torch's kernels: three runs on one H200, torch 2.11.0+cu130."""


class MemoryOfDevice(NamedTuple):
    """Memory of one kind of accelerator, in MiB."""

    driver: int
    """Total that the driver shows."""
    visible: int
    """Total that CUDA gives to a program, as torch prints it."""
    source: str


_LISTED = "nvidia-smi; total_memory as torch printed it in public listings"
MEMORY: Mapping[str, MemoryOfDevice] = {
    "v100": MemoryOfDevice(
        32510, 32501, "nvidia-smi; torch's error in liucongg/ChatGLM-Finetuning issue 73, 31.74 GiB"
    ),
    "t4": MemoryOfDevice(15360, 14909, "nvidia-smi; torch's error in Zheng-Chong/CatVTON issue 133, 14.56 GiB"),
    "l4": MemoryOfDevice(23034, 22558, "nvidia-smi; torch's error in ArcInstitute/evo2 issue 190, 22.03 GiB"),
    "l40s": MemoryOfDevice(
        46068, 45455, "nvidia-smi; torch's error in public listings, 44.39 GiB, with another driver 44.53"
    ),
    "a100-40gb": MemoryOfDevice(40960, 40339, "nvidia-smi; bottlerocket PR 3873"),
    "a100": MemoryOfDevice(81920, 81049, "nvidia-smi; mixbench issue 47"),
    "h100": MemoryOfDevice(81559, 81089, _LISTED),
    "h200": MemoryOfDevice(143771, 143771, "nvidia-smi; torch saw no less on one H200"),
    "b200": MemoryOfDevice(183359, 182630, "nvidia-smi; torch's error in public listings, 178.35 GiB"),
    "rtx3090": MemoryOfDevice(24576, 24268, "nvidia-smi; torch's error in GaoLii/DSP issue 10, 23.70 GiB"),
    "rtx4090": MemoryOfDevice(24564, 24207, "nvidia-smi; torch's error in ali-vilab/VGen issue 104, 23.64 GiB"),
    "rtx5090": MemoryOfDevice(32607, 32117, "nvidia-smi; deviceQuery in a public listing"),
    "mi300x": MemoryOfDevice(196592, 196290, "rocm-smi; torch's error in public listings, 191.69 GiB, also 191.98"),
    "tpu-v5e": MemoryOfDevice(
        16384, 16128, "Google Cloud TPU v5e documentation; XLA's error in public listings, 15.75 GiB"
    ),
}
"""Memory by the name that a user gives to a device."""


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
        raise UsageError(f"no datasheet of a device {short_text(name)} is known{among(name, DEVICES)}")
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


_HARMLESS = frozenset({"nvidia", "tesla", "geforce", "sxm", "sxm2", "sxm3", "sxm4", "sxm5", "hbm2", "hbm2e", "hbm3"})
"""Words of a driver's name that do not change the peak."""
_MEMORY = re.compile(r"\d+gb")


def peak_flops(machine: Machine, device: str, flops: Mapping[str, int]) -> float | None:
    """Return the FLOP/s of one device, `cpu` or `cuda`, that does all products at the peak of their dtypes.

    `flops` has the FLOPs of a step by dtype. The result is their sum over the sum of their shortest times. It is None
    if the peak of one of them is unknown.
    """
    peaks = _peaks(machine, device)
    if not flops or not set(flops) <= set(peaks):
        return None
    return sum(flops.values()) / sum(one / peaks[dtype] for dtype, one in flops.items())


def _peaks(machine: Machine, device: str) -> Mapping[str, float]:
    """Return the known peaks of a device in FLOP/s by dtype."""
    if device == "cuda":
        sheet = datasheet(machine.accelerators[0].name) if machine.accelerators else None
        return {} if sheet is None else sheet.flops
    rates = machine.rates.get(device)
    if rates is None:
        return {}
    return {dtype: one for dtype, one in rates.matmul_flops.items() if dtype not in rates.doubtful}


def datasheet(name: str) -> Device | None:
    """Return the device that a driver calls `name`, such as ``NVIDIA H100 80GB HBM3``; None if no datasheet fits.

    A datasheet's own name, such as ``H100 80 GB``, is understood as well.
    """
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower().replace(" gb", "gb")) if word]
    kind = "".join(word for word in words if word not in _HARMLESS and not _MEMORY.fullmatch(word))
    sized = next((f"{kind}-{word}" for word in words if _MEMORY.fullmatch(word)), "")
    return DEVICES.get(sized) or DEVICES.get(kind)
