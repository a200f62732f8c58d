"""Detects what is known of this host without torch, in milliseconds.

The instruction set is that of oneDNN on an x86 processor: the newest that the processor has and the user allows. The
library chooses its kernels by it. It therefore decides the speed of 16-bit products, the last bits of their results,
and their scratch (`cost.scratch`). `ONEDNN_MAX_CPU_ISA` lowers it for a process; the older name `DNNL_MAX_CPU_ISA`
applies if the other is not set. Names and their order are oneDNN's (oneapi-src.github.io/oneDNN, "CPU Dispatcher
Control").
"""

import os
import platform
import runpy
import shutil
import subprocess
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from assay.hardware.description import Accelerator, Machine

_TELLING = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16", "bf16", "sve")


def detect() -> Machine:
    """Return this host, with the cores that this process may use.

    Its memory is the smaller of the host's and the limit of the control group.
    """
    flags = (_processor_field("flags") or _processor_field("Features")).split()
    return Machine(
        processor=_processor_field("model name") or platform.processor() or platform.machine(),
        cores=len(usable_cores()),
        memory_bytes=min(filter(None, (_host_memory(), group_limit()))),
        instructions=tuple(flag for flag in _TELLING if flag in flags),
        instruction_set=instruction_set(flags, os.environ),
        accelerators=_nvidia(),
    )


def _host_memory() -> int:
    """Return the bytes of the host's memory."""
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    import psutil  # only here, so that a GPU is measured where psutil is missing

    return int(psutil.virtual_memory().total)


def usable_cores() -> set[int]:
    """Return the numbers of the cores on which this process may run."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


@cache
def torch_version() -> str | None:
    """Return `torch.__version__` of the installed torch without importing it; None if there is none.

    The metadata of a wheel from PyPI lack the build, such as the end of `2.13.0+cu130`.
    """
    found = find_spec("torch")
    if found is None or found.origin is None:
        return None
    return str(runpy.run_path(str(Path(found.origin).with_name("version.py")))["__version__"])


def installed_version() -> str | None:
    """Return the version of assay; None for sources on the path, which no installer knows."""
    try:
        return version("assay")
    except PackageNotFoundError:
        return None


def assay_version() -> str:
    """Return the version of assay, or `not installed`."""
    return installed_version() or "not installed"


def release(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version, such as (2, 13) of `2.13.0+cpu`."""
    return tuple(int(part) for part in version.partition("+")[0].split(".")[:2])


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


def oom_kills(system: Path = Path("/sys"), kernel: Path = Path("/proc")) -> int | None:
    """Return how many processes of this process's control group the system has killed because memory ran out.

    Both versions of control groups count them. Returns None if neither tells, or if it is not Linux.
    """
    groups = system / "fs/cgroup"
    try:
        lines = (kernel / "self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for number, controllers, path in (line.split(":", 2) for line in lines):
        if number == "0":
            root, name = groups, "memory.events"
        elif "memory" in controllers.split(","):
            root, name = groups / "memory", "memory.oom_control"
        else:
            continue
        for folder in (root / path.lstrip("/"), root):  # in a container its own group may be mounted as the root
            with suppress(OSError):
                counts = dict(line.split() for line in (folder / name).read_text().splitlines())
                if "oom_kill" in counts:
                    return int(counts["oom_kill"])
    return None


def _nvidia() -> tuple[Accelerator, ...]:
    tool = shutil.which("nvidia-smi")
    try:
        return () if tool is None else _asked(tool)
    except (OSError, subprocess.SubprocessError):
        return ()


@cache
def _asked(tool: str) -> tuple[Accelerator, ...]:
    """Return the GPUs that the driver's tool names. It takes a tenth of a second, and GPUs do not come or go."""
    query = [tool, "--query-gpu=name,memory.total,compute_cap", "--format=csv,noheader,nounits"]
    answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
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


_LEVELS: Mapping[str, tuple[str, ...]] = {
    "sse41": ("sse4_1",),
    "avx": ("avx",),
    "avx2": ("avx2",),
    "avx2_vnni": ("avx_vnni",),
    "avx512_core": ("avx512f", "avx512bw", "avx512vl", "avx512dq"),
    "avx512_core_vnni": ("avx512_vnni",),
    "avx512_core_bf16": ("avx512_bf16",),
    "avx512_core_fp16": ("avx512_fp16",),
    "avx512_core_amx": ("amx_tile", "amx_int8", "amx_bf16"),
    "avx512_core_amx_fp16": ("amx_fp16",),
}
"""Processor flags that each set adds to its predecessors, in Linux's names, from the oldest set to the newest."""
_BESIDE = {"avx2_vnni"}
"""Sets that newer sets do not require."""
_ALLOWED = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


def instruction_set(flags: Collection[str], environment: Mapping[str, str]) -> str:
    """Return the set's name in lower case; empty if the processor has none of them."""
    allowed, known = _allowed(environment), set(flags)
    newest = ""
    for name, needed in _LEVELS.items():
        if known.issuperset(needed):
            newest = name
        elif name not in _BESIDE:
            break
        if name == allowed:
            break
    return newest


def is_lowered(environment: Mapping[str, str]) -> bool:
    """True if the user allows fewer instructions than the processor may have."""
    return _allowed(environment) not in ("", "default", "all")


def _allowed(environment: Mapping[str, str]) -> str:
    return next((environment[name].lower() for name in _ALLOWED if environment.get(name)), "")
