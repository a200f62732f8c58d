"""The environment of a script: its interpreter, its torch, and what building the library needs.

Everything that is missing ends in one sentence with the remedy, before anything is started.
"""

import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from assay.errors import UsageError, short_text

OLDEST_TORCH = (2, 11)
"""Oldest torch that was tried."""
OLDEST_CUDA = 13
"""Oldest CUDA whose structures and functions the sources follow."""
ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Variables with settings of torch's allocator; the second is the older name."""
_LOOK = """
import importlib.util, json, os, runpy, sys
found = importlib.util.find_spec("torch")
answer = {"python": sys.executable, "torch": None}
if found is not None and found.origin:
    folder = os.path.dirname(found.origin)
    version = runpy.run_path(os.path.join(folder, "version.py"))
    answer |= {"torch": version["__version__"], "cuda": version["cuda"], "folder": folder}
print(json.dumps(answer))
"""
"""A program for the script's interpreter: it finds torch without importing it, which would take seconds."""


class ScriptEnvironment(NamedTuple):
    """A script's Python and its torch."""

    python: str
    torch: str
    """Version of torch, such as ``2.11.0+cu130``."""
    cuda: str
    """Version of CUDA that torch was built for, such as ``13.0``."""
    folder: Path
    """Folder of the package torch."""

    @property
    def includes(self) -> tuple[Path, ...]:
        """Folders of headers that came with torch's CUDA packages."""
        return tuple(sorted((self.folder.parent / "nvidia").glob("*/include")))

    @property
    def libraries(self) -> tuple[Path, ...]:
        """Libraries of torch, whose undefined symbols must be there."""
        return tuple(sorted((self.folder / "lib").glob("lib*.so")))


def interpreter(command: Sequence[str]) -> str:
    """Return the Python that a command starts: its first word, or what the first line of a script names.

    Raises `UsageError` if the command starts no Python.
    """
    program = shutil.which(command[0])
    if program is None:
        raise UsageError(f"there is no program {short_text(command[0])}; write the command as in: -- python train.py")
    if Path(program).name.startswith("python"):
        return program
    with Path(program).open("rb") as stream:
        first = stream.readline(500)
    words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    if words and Path(words[0]).name == "env":
        words = [one for one in words[1:] if not one.startswith("-")]
    if words and Path(words[0]).name.startswith("python"):
        return shutil.which(words[0]) or words[0]
    raise UsageError(f"{short_text(command[0])} does not start Python; write the command as in: -- python train.py")


def environment(command: Sequence[str]) -> ScriptEnvironment:
    """Return the environment of a command. Raises `UsageError` with the remedy if its torch needs a GPU."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        raise UsageError("an absent GPU needs Linux on x86-64 (WSL2 is one); use `assay estimate --device` here")
    python = interpreter(command)
    found = _looked(python)
    if found["torch"] is None:
        raise UsageError(f"{python} has no torch; name the Python of the environment that runs your script")
    if not found["cuda"]:
        raise UsageError(
            f"torch {found['torch']} of {python} is a CPU build; `assay absent setup -- {python}` makes an environment "
            "with a CUDA build beside it (5 GB and more)"
        )
    version = tuple(int(one) for one in found["torch"].split("+")[0].split(".")[:2])
    if version < OLDEST_TORCH:
        raise UsageError(f"torch {found['torch']} is too old for an absent GPU; install torch 2.11 or newer")
    if int(found["cuda"].split(".")[0]) < OLDEST_CUDA:
        raise UsageError(
            f"torch {found['torch']} is built for CUDA {found['cuda']}, and an absent GPU knows CUDA 13; "
            "install torch's build for CUDA 13"
        )
    return ScriptEnvironment(found["python"], found["torch"], found["cuda"], Path(found["folder"]))


def _looked(python: str) -> dict[str, str]:
    try:
        done = subprocess.run([python, "-c", _LOOK], capture_output=True, text=True, timeout=60)
        found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, IndexError, ValueError) as error:
        raise UsageError(
            f"{python} could not be asked for its torch ({type(error).__name__}); does it start?"
        ) from error
    return found


def check_tools(place: ScriptEnvironment) -> None:
    """Raise `UsageError` with the remedy if the library cannot be built: no compiler, or no headers of CUDA."""
    for tool in ("gcc", "nm"):
        if shutil.which(tool) is None:
            raise UsageError(f"{tool} is missing, which builds the absent GPU; install gcc (Debian: apt install gcc)")
    header = "cuda_runtime_api.h"
    if not any((folder / header).exists() for folder in place.includes):
        raise UsageError(
            f"CUDA's header {header} is not beside torch {place.torch}; install it there: "
            "pip install nvidia-cuda-runtime"
        )


def check_no_gpu(devices: Path = Path("/dev")) -> None:
    """Raise `UsageError` if this machine has a GPU of NVIDIA, which an absent one must never hide."""
    if (devices / "nvidia0").exists() or _driver_devices() > 0:
        raise UsageError(
            "this machine has a GPU of NVIDIA; run the script on it (`assay measure` measures a step), "
            "because an absent GPU would hide it"
        )


def _driver_devices() -> int:
    """Number of GPUs that the driver of this machine reports; 0 without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int(0)
        started = driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
    except (OSError, AttributeError):
        return 0
    return count.value if started else 0


def check_settings(variables: dict[str, str] | None = None) -> None:
    """Raise `UsageError` if the environment asks for an allocator whose memory is not known here."""
    given = os.environ if variables is None else variables
    for name in ALLOCATOR_VARIABLES:
        if "cudaMallocAsync" in given.get(name, ""):
            raise UsageError(
                f"{name} asks for cudaMallocAsync, whose memory only CUDA knows; unset it for this command"
            )
    if given.get("PYTORCH_NO_CUDA_MEMORY_CACHING", "0") not in ("", "0"):
        raise UsageError("PYTORCH_NO_CUDA_MEMORY_CACHING turns torch's counts of memory off; unset it for this command")
