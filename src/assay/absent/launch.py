"""Start a script with the absent GPU, wait for it, and read what its observer found.

The library is preloaded, so that its functions come before CUDA's. A folder of its own is first on the path of Python.
Its `sitecustomize` starts the observer, and then runs the user's own `sitecustomize`, if there is one.

Programs find an `nvidia-smi` there, which answers queries with the device's own figures.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from assay.absent.cuda_library import LIBRARY, library_folder
from assay.absent.gpus import AbsentDevice, description
from assay.absent.observation import Observation
from assay.absent.toolchain import check_no_gpu, check_settings, environment
from assay.config import Home
from assay.errors import UsageError, short_text
from assay.hardware.devices import MIB

_SCRIPT = '''#!{python} -SE
"""Stands in for nvidia-smi: the driver of an absent GPU."""
import sys

FIELDS, COUNT = {fields!r}, {count}
UNITS = {{"memory": " MiB"}}
options = dict(one.lstrip("-").split("=", 1) for one in sys.argv[1:] if "=" in one)
style = options.get("format", "").split(",")
if "query-gpu" not in options or style[0] != "csv":
    sys.exit("an absent GPU answers nvidia-smi --query-gpu=FIELD,... --format=csv only")
asked = options["query-gpu"].split(",")
unit = lambda name: "" if "nounits" in style else UNITS.get(name.split(".")[0], "")
if "noheader" not in style:
    print(", ".join(asked))
for index in range(COUNT):
    row = FIELDS | {{"index": str(index)}}
    print(", ".join(row[name] + unit(name) if name in row else "[N/A]" for name in asked))
'''


def write_driver_query(folder: Path, device: AbsentDevice, count: int) -> Path:
    """Write an executable `nvidia-smi` for some equal devices into a new folder, and return the folder.

    It knows names, memory and compute capability. Other figures of a device are "[N/A]", as the driver says of those
    that a device does not have.
    """
    fields = {
        "count": str(count),
        "name": device.name,
        "memory.total": str(device.driver_bytes // MIB),
        "compute_cap": ".".join(map(str, device.capability)),
    }
    folder.mkdir()
    tool = folder / "nvidia-smi"
    tool.write_text(_SCRIPT.format(python=sys.executable, fields=fields, count=count), encoding="utf-8")
    tool.chmod(0o755)
    return folder


INSIDE = Path(__file__).parent / "inside"
_SITE = '''"""Starts the observer of an absent GPU, then the sitecustomize that this file hides."""
import importlib.machinery, importlib.util, os, sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [one for one in sys.path if os.path.abspath(one) != here]
inside = {inside!r}
spec = importlib.util.spec_from_file_location(
    "absent_inside", os.path.join(inside, "__init__.py"), submodule_search_locations=[inside]
)
module = importlib.util.module_from_spec(spec)
sys.modules["absent_inside"] = module
written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
spec.loader.exec_module(module)
sys.dont_write_bytecode = written
module.start()
hidden = importlib.machinery.PathFinder.find_spec("sitecustomize")
if hidden is not None and hidden.loader is not None:
    own = importlib.util.module_from_spec(hidden)
    sys.modules["sitecustomize"] = own
    hidden.loader.exec_module(own)
'''
TIMES = "ASSAY_ABSENT_TIMES"
"""Variable of the environment that asks the observer to keep the operators of a step."""
_PATIENCE = 10
"""Seconds that a script has to end after an interrupt."""


class StatedRead(NamedTuple):
    """A value that the user states for what a line reads."""

    file: str
    line: int
    value: str


class Launched(NamedTuple):
    """A script that has ended."""

    returncode: int
    observations: tuple[Observation, ...]
    """One for each process of the script that used the device, the largest peak first."""


def stated_read(text: str) -> StatedRead:
    """Parse ``train.py:12=300``. Raises `UsageError` for another form, or a value that is no number or bool."""
    place, _, value = text.partition("=")
    file, _, line = place.rpartition(":")
    try:
        if value not in ("True", "False"):
            float(value)
        return StatedRead(file, int(line), value) if file else _no_read(text)
    except ValueError:
        return _no_read(text)


def _no_read(text: str) -> StatedRead:
    raise UsageError(f"--read is {short_text(text)}; write a line and its value, such as train.py:12=300, 0.5 or True")


def run_absent(
    command: Sequence[str],
    device: AbsentDevice,
    *,
    count: int = 1,
    steps: int | None = None,
    reads: Sequence[StatedRead] = (),
    variables: Mapping[str, str] = MappingProxyType({}),
    tell: Callable[[str], None] = lambda text: None,
) -> Launched:
    """Run a command on an absent GPU to its end, or for some steps of its optimizer.

    `variables` are further variables of its environment, such as those of a rank. The output of the script goes to
    standard error. Raises `UsageError` if the machine or the script's environment does not allow it.
    """
    library = library_for(command, tell)
    # A process that the script left behind may still write there.
    with tempfile.TemporaryDirectory(prefix="assay-absent-", ignore_cleanup_errors=True) as folder:
        given = {**child_environment(library, Path(folder)), **description(device, count), **variables}
        given["PATH"] = _first("PATH", str(write_driver_query(Path(folder) / "bin", device, count)))
        given["ASSAY_ABSENT_STEPS"] = str(steps or 0)
        given["ASSAY_ABSENT_READS"] = json.dumps(reads)
        returncode = _waited(command, given)
        return Launched(returncode, _found(Path(folder) / "found"))


def library_for(command: Sequence[str], tell: Callable[[str], None]) -> Path:
    """Return the folder with the library for a command's torch; build it if it is not there.

    Raises `UsageError` if the machine or the environment of the command's Python does not allow an absent GPU.
    """
    check_no_gpu()
    check_settings()
    return library_folder(environment(command), Home().cache / "absent", tell)


def child_environment(library: Path, folder: Path) -> dict[str, str]:
    """Return the environment of the script, and write the `sitecustomize` that it finds first."""
    site, found = folder / "site", folder / "found"
    site.mkdir()
    found.mkdir()
    (site / "sitecustomize.py").write_text(_SITE.format(inside=str(INSIDE)), encoding="utf-8")
    return dict(os.environ) | {
        **library_environment(library),
        "PYTHONPATH": _first("PYTHONPATH", str(site)),
        "ASSAY_ABSENT_FOUND": str(found),
    }


def library_environment(library: Path) -> dict[str, str]:
    """Return the variables with which a process loads the library of a folder in the place of CUDA."""
    return {
        "LD_LIBRARY_PATH": _first("LD_LIBRARY_PATH", str(library)),
        "LD_PRELOAD": _first("LD_PRELOAD", str(library / LIBRARY)),
        "TRITON_LIBCUDA_PATH": str(library),
    }


def _first(name: str, value: str) -> str:
    """A value before those that a variable has already."""
    return f"{value}{os.pathsep}{os.environ[name]}" if os.environ.get(name) else value


def _waited(command: Sequence[str], variables: dict[str, str]) -> int:
    """Run a command and return its exit code. An interrupt reaches it from the terminal; it gets time to end."""
    try:
        process = subprocess.Popen([*command], env=variables, stdout=sys.stderr.fileno())
    except OSError as error:
        raise UsageError(f"{command[0]} could not be started: {error.strerror}") from error
    try:
        return process.wait()
    except KeyboardInterrupt:
        try:
            return process.wait(_PATIENCE)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.terminate()
            process.wait(_PATIENCE)
        return process.returncode


def _found(folder: Path) -> tuple[Observation, ...]:
    """Observations of the processes that used the device; without any, those of the others."""
    all_of_them = [Observation.model_validate_json(path.read_bytes()) for path in sorted(folder.glob("*.json"))]
    used = [one for one in all_of_them if one.devices] or all_of_them[:1]
    return tuple(sorted(used, key=lambda one: -one.reserved_bytes))
