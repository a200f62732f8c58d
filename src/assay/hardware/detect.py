"""A machine as plain data, and this host as it is detected without torch, in milliseconds.

The data are processors, memory, accelerators, and the rates that were measured on them. Peaks leave out the sizes of
operators: a small product is slower than a large one, and an exponential is slower than a copy. A tensor in a cache is
read faster, and fresh memory is written slowly. `instruments.rates.timed_operators` measures these speeds, and the
roofline of a step reads them.

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
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from math import exp, inf, log
from pathlib import Path

from pydantic import Field

from assay.config.base import Frozen
from assay.hardware.links import Link
from assay.hardware.step_times import LOADED, StepTimes

MOVING = "moving"
"""Key of a copy with another layout, whose speed is that of all operators which were not measured."""
CALLING = "calling"
"""Key of the calls per second of modules on a few numbers: what the host needs for an operator of a model."""
FLASH_DEPTHS = (16, 32, 64)
"""Depths of heads at which fused attention is measured, each by the length of its sequences."""


class OperatorSpeed(Frozen):
    """Speed of an operator's forward and backward at some sizes."""

    at: tuple[float, ...]
    """Sizes, ascending: bytes of arguments and results; for products the narrowest dimension of the factors, and for
    fused attention the length of sequences."""
    forward: tuple[float, ...]
    """Bytes of arguments and results per second at each size, or FLOPs per second of a product."""
    backward: tuple[float, ...]
    """Bytes or FLOPs per second in backward, where the bytes count twice."""

    def seconds(self, size: float, forward: float, backward: float) -> tuple[float, float]:
        """Return the seconds of so many bytes or FLOPs in forward and in backward, at a size."""
        return forward / _between(self.at, self.forward, size), backward / _between(self.at, self.backward, size)


def key_of(name: str, dtype: str) -> str:
    """Return the key of an operator's speed in one dtype."""
    return f"{name} {dtype}"


def flash_key(depth: int, dtype: str) -> str:
    """Return the key of fused attention's speed for heads of about this depth."""
    nearest = min(FLASH_DEPTHS, key=lambda one: abs(log(one / depth)))
    return f"fused attention of depth {nearest} {dtype}"


@lru_cache(maxsize=2**14)
def _between(sizes: tuple[float, ...], speeds: tuple[float, ...], size: float) -> float:
    """Return the speed at a size: on a line between logarithms, and constant beyond the ends."""
    if size <= sizes[0]:
        return speeds[0]
    for low, high, slow, fast in zip(sizes, sizes[1:], speeds, speeds[1:], strict=False):
        if size <= high:
            share = log(size / low) / log(high / low)
            return exp((1 - share) * log(slow) + share * log(fast))
    return speeds[-1]


AMPERE, ADA, HOPPER = (8, 0), (8, 9), (9, 0)
"""Lowest compute capabilities: the first with bfloat16 and TF32, the second with float8."""

SHEET = "datasheet"
"""Version of torch of rates that no torch has measured."""
_CONTRADICTION = 2.0


class Accelerator(Frozen):
    """One accelerator device."""

    name: str
    memory_bytes: int
    compute_capability: tuple[int, int] | None = None
    """CUDA compute capability; None for other kinds of devices."""
    multiprocessors: int | None = None
    """Number of its multiprocessors; None if it is not known."""


class Rates(Frozen):
    """Rates measured with torch on one device, with which achieved figures are compared."""

    device: str
    matmul_flops: Mapping[str, float]
    """Sustained FLOP/s of a large square matrix product, by dtype; a multiply-add counts as two."""
    bandwidth_bytes: float
    """Bytes per second read and written by a large copy."""
    launch_seconds: float
    """Seconds of one operation on a few numbers, recorded for backward: the lower bound of every operation."""
    backward_launch_seconds: float
    """Seconds of the backward of such an operation, with gradients for two arguments."""
    threads: int
    torch: str
    operators: Mapping[str, OperatorSpeed] = Field(default_factory=dict)
    """Speeds of single operators; empty where they were not measured."""
    sheet: str = ""
    """Key of the device among datasheets, if these are its peaks."""
    link: Link | None = None
    """Link between two processes of this machine that compute on such devices; None if it was not measured."""
    doubtful: tuple[str, ...] = ()
    """Dtypes, or `copy`, whose rate was not confirmed by a second trial or is contradicted by another rate."""
    others_share: float | None = None
    """Share of all cores that other programs and other guests of the host used meanwhile; None if not recorded."""

    @property
    def contradictory(self) -> bool:
        """True if float32 is far slower than float64. No processor is like that, although some GPUs are close to it."""
        narrow, wide = (self.matmul_flops.get(dtype) for dtype in ("float32", "float64"))
        return narrow is not None and wide is not None and narrow < wide / _CONTRADICTION

    @property
    def counted(self) -> bool:
        """True if these count FLOPs and are those of no device, so that memory is free to move."""
        return self.bandwidth_bytes == inf

    @property
    def specified(self) -> bool:
        """True if these are peaks of a datasheet, which no step reaches."""
        return bool(self.sheet)

    @property
    def caveat(self) -> str:
        """Reasons why the rates may be too low, in words; empty if none is known."""
        found = []
        if self.others_share is not None and self.others_share > LOADED:
            found.append(f"measured under load, other processes used {self.others_share:.0%} of the cores")
        if self.doubtful:
            found.append(f"no two trials agree: {', '.join(self.doubtful)}")
        return "; ".join(found)


class Machine(Frozen):
    """A host. `detect()` fills in all that is known without torch; `rates` are measured separately."""

    processor: str
    cores: int
    memory_bytes: int
    instructions: tuple[str, ...] = ()
    """Vector and matrix extensions that decide which dtypes are native."""
    instruction_set: str = ""
    """Newest set that oneDNN uses here, in oneDNN's own name in lower case; empty if it is not known."""
    accelerators: tuple[Accelerator, ...] = ()
    rates: Mapping[str, Rates] = Field(default_factory=dict)
    """Rates by device: `cpu`, `cuda`."""
    absent: bool = False
    """True if it is known by a datasheet only, so that a run is predicted here and does not start here."""
    step_times: Mapping[str, StepTimes] = Field(default_factory=dict)
    """Times of whole steps at small depths, by the digest of the step (`estimator.timing.step_time`)."""

    @property
    def native_dtypes(self) -> tuple[str, ...]:
        """Dtypes in which the CPU multiplies matrices in hardware; others are converted, which is slower."""
        native = ["float32", "float64"]
        if {"avx512_bf16", "amx_bf16", "bf16"} & set(self.instructions):
            native.append("bfloat16")
        if {"avx512_fp16", "amx_fp16"} & set(self.instructions):
            native.append("float16")
        return tuple(native)

    def converts(self, dtype: str, wanted: str) -> str:
        """Return why a run on `wanted` multiplies in `dtype` by conversion; empty: it does not, or nobody knows."""
        if self.device(wanted) != "cpu" or not self.instructions or dtype in self.native_dtypes:
            return ""
        return f"this CPU multiplies {dtype} by conversion, which takes more time (oneDNN's guide, Data Types)"

    def older_than(self, capability: tuple[int, int]) -> Accelerator | None:
        """First accelerator that is known to have a lower compute capability; None if there is none."""
        for one in self.accelerators:
            if one.compute_capability is not None and one.compute_capability < capability:
                return one
        return None

    def device(self, wanted: str) -> str:
        """Return `cpu` or `cuda` for a run's `device`; `auto` is an accelerator if there is one."""
        if wanted != "auto":
            return wanted
        return "cuda" if self.accelerators else "cpu"


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
