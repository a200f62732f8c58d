"""The findings of `assay doctor`: one for each question about a machine, without torch.

Every check reads a `Host`: folders of the kernel's files, the environment, and the installed packages. A fact that this
system does not have is no error. Its finding says which figure will be missing, and why.
"""

import os
import platform
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from assay.config.base import Frozen
from assay.hardware.detect import Machine, detect, group_limit, release
from assay.units import format_bytes

_REPEATS = 400
_LOOPS = 20_000


def _work() -> None:
    """Do about a millisecond of arithmetic."""
    total = 0
    for number in range(_LOOPS):
        total += number * number


def jitter(work: Callable[[], object] = _work, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the 95th percentile of repeated equal work over its median, less one.

    Programs that share the machine, and clocks that change their frequency, make single repetitions longer.
    """
    spent = []
    for _ in range(_REPEATS):
        began = clock()
        work()
        spent.append(clock() - began)
    return statistics.quantiles(spent, n=20)[-1] / statistics.median(spent) - 1


class FindingState(StrEnum):
    """The judgement of a finding."""

    GOOD = "good"
    LIMITED = "limited"
    """Something is missing that this machine cannot have, or need not have."""
    MEND = "mend"
    """Something is wrong that the user can change."""


class Finding(Frozen):
    """One fact about the machine."""

    subject: str
    here: str | None
    """The fact; None if this system does not tell it."""
    state: FindingState
    means: str
    """The consequence for assay."""
    remedy: str = ""
    """An action that mends it; empty if nothing needs to be done."""


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@dataclass(frozen=True)
class Host:
    """A machine, by the places where its facts are read."""

    machine: Machine = field(default_factory=detect)
    kernel: Path = Path("/proc")
    devices: Path = Path("/sys")
    system: str = platform.system()
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    installed: Callable[[str], str | None] = _installed
    """Version of a package; None if it is not installed."""
    program: Callable[[str], str | None] = shutil.which
    jitter: Callable[[], float] = jitter
    half_repeated: Callable[[], int | None] = lambda: None
    """Elements of the largest 16-bit dropout mask of which the GPU repeats half; None if that cannot be seen."""
    home: Path = Path(".assay")
    free: Callable[[Path], int] = lambda place: shutil.disk_usage(place).free
    """Free bytes of the disk of a folder."""


OLDEST_TORCH = (2, 11)
_EXTRAS = {
    "transformers": "hf",
    "torchao": "low-bit",
    "ray": "ray",
    "submitit": "slurm",
    "starlette": "dashboard",
    "uvicorn": "dashboard",
    "plotly": "dashboard",
    "tensorboard": "tensorboard",
    "mlflow": "mlflow",
    "wandb": "wandb",
    "trackio": "trackio",
}
"""Optional packages, and the extra of assay that installs each."""
_QUIET = 0.1
"""Jitter of a machine on which a change of a few per cent can be measured within minutes."""
_LITTLE_DISK = 5 * 2**30


def examine(host: Host) -> Iterator[Finding]:
    """Return what is found, in the order in which a user reads it."""
    for check in (_python, _torch, _instructions, _cores, _memory, _accelerator, _peak, _recorder, _compiler):
        yield check(host)
    if host.machine.accelerators:
        yield _masks(host)
    yield from _settings(host)
    yield _clock(host)
    yield _disk(host)
    yield from _extras(host)


def _python(host: Host) -> Finding:
    here = platform.python_version()
    if host.environment.get("PYTHONDONTWRITEBYTECODE"):
        return Finding(
            subject="Python",
            here=f"{here}, without bytecode files",
            state=FindingState.MEND,
            means="every measured process compiles the sources again, which takes seconds",
            remedy="unset PYTHONDONTWRITEBYTECODE",
        )
    return Finding(subject="Python", here=here, state=FindingState.GOOD, means="3.11 or newer is needed")


def _torch(host: Host) -> Finding:
    here = host.installed("torch")
    oldest = ".".join(map(str, OLDEST_TORCH))
    if here is None:
        return Finding(
            subject="torch",
            here="not installed",
            state=FindingState.MEND,
            means="nothing can be trained; estimates work",
            remedy=f"install torch {oldest} or newer",
        )
    if release(here) < OLDEST_TORCH:
        return Finding(
            subject="torch",
            here=here,
            state=FindingState.MEND,
            means="this version was never tested",
            remedy=f"install torch {oldest} or newer",
        )
    if here.endswith("+cpu") and host.machine.accelerators:
        return Finding(
            subject="torch",
            here=here,
            state=FindingState.MEND,
            means="this build cannot use the accelerator",
            remedy="install the CUDA build of torch (pytorch.org/get-started)",
        )
    return Finding(subject="torch", here=here, state=FindingState.GOOD, means="it can train")


def _instructions(host: Host) -> Finding:
    here = host.machine.instruction_set or " ".join(host.machine.instructions) or None
    native = "bfloat16" in host.machine.native_dtypes
    return Finding(
        subject="instruction set",
        here=here,
        state=FindingState.GOOD if native else FindingState.LIMITED,
        means="the processor multiplies bfloat16 in hardware"
        if native
        else "the processor converts 16-bit formats, so they save memory and cost time",
    )


def _cores(host: Host) -> Finding:
    cores = host.machine.cores
    asked = host.environment.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and int(asked) > cores:
        return Finding(
            subject="cores",
            here=f"{cores}, but OMP_NUM_THREADS={asked}",
            state=FindingState.MEND,
            means="threads wait for each other, and times are long and unsteady",
            remedy=f"set OMP_NUM_THREADS to at most {cores}, or unset it",
        )
    if cores == 1:
        means = "the coordinator and the measured process share it, so times are less steady"
        return Finding(subject="cores", here="1", state=FindingState.LIMITED, means=means)
    return Finding(subject="cores", here=str(cores), state=FindingState.GOOD, means="kernels run on as many threads")


def _memory(host: Host) -> Finding:
    limited = group_limit(host.devices) is not None
    means = "the limit of the control group is respected" if limited else "no control group limits it here"
    return Finding(subject="memory", here=format_bytes(host.machine.memory_bytes), state=FindingState.GOOD, means=means)


def _accelerator(host: Host) -> Finding:
    if not host.machine.accelerators:
        means = "runs use the processor; techniques that need a GPU are refused with a sentence"
        return Finding(subject="GPU", here="none", state=FindingState.LIMITED, means=means)
    names = ", ".join(f"{one.name}, {format_bytes(one.memory_bytes)}" for one in host.machine.accelerators)
    return Finding(subject="GPU", here=names, state=FindingState.GOOD, means="runs use it with device=cuda or auto")


def _masks(host: Host) -> Finding:
    largest = host.half_repeated()
    if largest is None:
        means = "torch could not be asked; the record of a run with dropout says it"
        return Finding(subject="dropout in 16 bits", here=None, state=FindingState.LIMITED, means=means)
    if largest == 0:
        means = "neighbouring masks are independent"
        return Finding(subject="dropout in 16 bits", here="no mask repeats", state=FindingState.GOOD, means=means)
    return Finding(
        subject="dropout in 16 bits",
        here=f"half of a mask of up to {largest:,} elements comes again in the next one",
        state=FindingState.LIMITED,
        means="a defect of torch: small neighbouring masks are not independent; no run is refused for it",
    )


def _peak(host: Host) -> Finding:
    if (host.kernel / "self/clear_refs").exists():
        return Finding(
            subject="peak of a process",
            here="resettable",
            state=FindingState.GOOD,
            means="it is measured block by block",
        )
    return Finding(
        subject="peak of a process",
        here=None,
        state=FindingState.LIMITED,
        means=f"{host.system} cannot reset the peak of a process, so this figure is missing; peaks of tensors are not",
    )


def _recorder(host: Host) -> Finding:
    here = host.installed("memray")
    if here is not None:
        return Finding(
            subject="memray", here=here, state=FindingState.GOOD, means="scratch of libraries is recorded as well"
        )
    windows = host.system == "Windows"
    return Finding(
        subject="memray",
        here="not installed",
        state=FindingState.LIMITED if windows else FindingState.MEND,
        means="scratch of libraries is not recorded; peaks of tensors are",
        remedy="" if windows else "install memray",
    )


def _compiler(host: Host) -> Finding:
    found = next(filter(None, map(host.program, ("g++", "c++", "clang++"))), None)
    if found:
        return Finding(
            subject="C++ compiler", here=found, state=FindingState.GOOD, means="compile works on the processor"
        )
    return Finding(
        subject="C++ compiler",
        here="none",
        state=FindingState.MEND,
        means="the technique compile cannot build kernels for the processor",
        remedy="install g++ or clang",
    )


def _settings(host: Host) -> Iterator[Finding]:
    """Environment variables that change what is measured."""
    slows = {
        "ONEDNN_MAX_CPU_ISA": "products may use fewer instructions than the processor has",
        "DNNL_MAX_CPU_ISA": "products may use fewer instructions than the processor has",
        "CUDA_LAUNCH_BLOCKING": "each GPU kernel is waited for, so times are long",
        "TORCH_LOGS": "logging takes time in each step",
        "MALLOC_ARENA_MAX": "malloc behaves otherwise than in runs without it",
    }
    for name, means in slows.items():
        if value := host.environment.get(name):
            yield Finding(
                subject=name,
                here=value,
                state=FindingState.MEND,
                means=means,
                remedy=f"unset {name}, unless it is meant",
            )


def _clock(host: Host) -> Finding:
    spread = host.jitter()
    longer = f"{spread:.0%} longer than" if spread < 1 else f"{1 + spread:.1f} times as long as"
    here = f"equal work takes up to {longer} usual"
    if spread > _QUIET:
        return Finding(
            subject="steadiness",
            here=here,
            state=FindingState.MEND,
            means="intervals of times will be wide",
            remedy="end other programs, or set OMP_WAIT_POLICY=PASSIVE beside them; plug a laptop in",
        )
    return Finding(
        subject="steadiness", here=here, state=FindingState.GOOD, means="small changes of time can be measured"
    )


def _disk(host: Host) -> Finding:
    place = next(one for one in (host.home.absolute(), *host.home.absolute().parents) if one.is_dir())
    free = host.free(place)
    enough = free >= _LITTLE_DISK
    return Finding(
        subject="disk",
        here=f"{format_bytes(free)} free for {host.home}",
        state=FindingState.GOOD if enough else FindingState.MEND,
        means="runs and checkpoints fit" if enough else "checkpoints of larger models may not fit",
        remedy="" if enough else "free some space, or set ASSAY_HOME to a larger disk",
    )


def _extras(host: Host) -> Iterator[Finding]:
    for package, extra in _EXTRAS.items():
        here = host.installed(package)
        yield Finding(
            subject=package,
            here=here or "not installed",
            state=FindingState.GOOD if here else FindingState.LIMITED,
            means="available" if here else f"what needs it is refused; pip install 'assay[{extra}]' adds it",
        )
