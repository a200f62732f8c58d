"""Detects what is known of this host without torch, in milliseconds."""

import os
import platform
import shutil
import subprocess
from functools import cache
from pathlib import Path

import psutil

from assay.hardware.instruction_set import instruction_set
from assay.hardware.machine import Accelerator, Machine

_TELLING = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16", "bf16", "sve")


def detect() -> Machine:
    """Return this host, with the cores that this process may use.

    Its memory is the smaller of the host's and the limit of the control group.
    """
    flags = (_processor_field("flags") or _processor_field("Features")).split()
    return Machine(
        processor=_processor_field("model name") or platform.processor() or platform.machine(),
        cores=len(usable_cores()),
        memory_bytes=min(filter(None, (psutil.virtual_memory().total, group_limit()))),
        instructions=tuple(flag for flag in _TELLING if flag in flags),
        instruction_set=instruction_set(flags, os.environ),
        accelerators=_nvidia(),
    )


def usable_cores() -> set[int]:
    """Return the numbers of the cores on which this process may run."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


@cache
def _processor_field(name: str) -> str:
    """Return a field of the first processor, which does not change while a program runs; empty off Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def group_limit(system: Path = Path("/sys")) -> int | None:
    """Return the bytes that the control group grants, from the kernel's folder; None if it sets no limit."""
    try:
        text = (system / "fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _nvidia() -> tuple[Accelerator, ...]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    query = [tool, "--query-gpu=name,memory.total,compute_cap", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    found = []
    for line in filter(None, answer.splitlines()):
        name, mebibytes, capability = (part.strip() for part in line.rsplit(",", 2))
        major, _, minor = capability.partition(".")
        found.append(
            Accelerator(
                name=name, memory_bytes=int(mebibytes) * 2**20, compute_capability=(int(major), int(minor or 0))
            )
        )
    return tuple(found)
