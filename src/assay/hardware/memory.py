"""Memory of accelerators: what the driver gives, and what a program sees of it.

A datasheet's figure is a name. The driver (`nvidia-smi`) shows what is left after error correction and firmware. CUDA's
total, which torch prints, is less again by 0.2 to 3 %, and differs by some 100 MB between versions of the driver. Where
public listings differ, the smaller figure is taken. A step has this total less a context, of which the largest is
subtracted where a step must fit.
"""

from collections.abc import Mapping
from typing import NamedTuple

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
