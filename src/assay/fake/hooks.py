"""Build and load the library with which a build of torch takes the ways of CUDA on fake tensors.

g++ compiles one source with the headers of the installed torch, once for each torch, in about five seconds. The library
is kept in the cache of the home. It must be loaded before torch is imported, so a process of its own does the tracing.
"""

import ctypes
import hashlib
import importlib.util
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from assay.absent.gpus import AbsentDevice, absent_device
from assay.errors import UsageError, one_line
from assay.files import new_folder

SOURCE = Path(__file__).parent / "c" / "absent_cuda.cpp"
LIBRARY = "libabsent_cuda.so"
CUDNN = 91900
"""Version of cuDNN that comes with torch 2.11.0+cu130, on which torch's choice of attention depends."""
_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"


class Torch(NamedTuple):
    """The torch of this interpreter, which need not be imported."""

    version: str
    folder: Path


def installed_torch() -> Torch:
    """Return the torch that `import torch` would find. Raises `UsageError` if there is none."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        raise UsageError("a trace needs torch; install it in the environment of assay")
    folder = Path(found.origin).parent
    return Torch(str(runpy.run_path(str(folder / "version.py"))["__version__"]), folder)


def hooks_library(cache: Path, tell: Callable[[str], None]) -> Path:
    """Return the library for the installed torch; build it if it is not in `cache`.

    Raises `UsageError` if there is no compiler, or the headers do not fit the source.
    """
    torch = installed_torch()
    digest = hashlib.sha256(SOURCE.read_bytes() + str(torch.folder).encode()).hexdigest()[:16]
    folder = cache / f"torch-{torch.version}-{digest}"
    if (folder / LIBRARY).exists():
        return folder / LIBRARY
    compiler = _compiler()
    tell(f"building the hooks of an absent GPU for torch {torch.version}; some seconds, once")
    with new_folder(folder, lambda there: (there / LIBRARY).exists()) as made:
        _compile(compiler, torch, made / LIBRARY)
    return folder / LIBRARY


def load(library: Path) -> ctypes.CDLL:
    """Load torch's library of the CPU, then the hooks. Raises `RuntimeError` if torch has been imported before."""
    if "torch" in sys.modules:
        raise RuntimeError("the hooks of an absent GPU must be loaded before torch is imported")
    ctypes.CDLL(str(installed_torch().folder / "lib" / f"libtorch_cpu{_SUFFIX}"), ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)


def begin(library: ctypes.CDLL, device: AbsentDevice) -> None:
    """Take the place of a GPU, once torch has been imported."""
    major, minor = device.capability
    library.absent_cuda_begin(ctypes.c_int(major), ctypes.c_int(minor), ctypes.c_long(CUDNN))


def begin_absent(name: str, library: str | None) -> None:
    """Load the hooks of a GPU of this name that is not there, then torch; nothing without a library."""
    if library is not None:
        loaded = load(Path(library))
        import torch  # noqa: F401

        begin(loaded, absent_device(name))


def _compiler() -> str:
    for name in ("g++", "clang++", "c++"):
        if (found := shutil.which(name)) is not None:
            return found
    raise UsageError(
        "no compiler of C++ is found, which a trace for a GPU needs; install g++ (Debian: apt install g++)"
    )


def _compile(compiler: str, torch: Torch, library: Path) -> None:
    headers, libraries = torch.folder / "include", torch.folder / "lib"
    # With a header for each operator, the few that are needed are read, and not those of all.
    command = [compiler, "-std=c++20", "-O0", "-w", "-DAT_PER_OPERATOR_HEADERS", "-shared", "-fPIC", f"-I{headers}"]
    command += [f"-I{headers / 'torch/csrc/api/include'}", str(SOURCE), "-o", str(library)]
    done = subprocess.run(
        [*command, f"-L{libraries}", "-ltorch_cpu", "-lc10"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        complaint = next((one for one in done.stderr.splitlines() if "error" in one), done.stderr)
        raise UsageError(
            f"the hooks of an absent GPU do not compile for torch {torch.version}: {one_line(complaint)[:300]}; "
            "torch 2.11 to 2.13 were tried"
        )
