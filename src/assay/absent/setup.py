"""An environment with a CUDA build of torch, beside one with a CPU build, and with the same other packages.

torch's build on the package registry is for CUDA on Linux. The new environment gets torch's release of the old one, if
an absent GPU knows it. It gets all other packages in their versions. A package that was installed from a folder is
installed from that folder again.

pip may be set up to find CPU builds as well, in a folder or a second index. Their versions end in a mark, as in
`2.13.0+cpu`, and pip prefers that to `2.13.0` for the requirement `==2.13.0`. Only `===` asks for one without a mark.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from assay.absent.toolchain import OLDEST_TORCH, environment, interpreter
from assay.errors import UsageError, one_line

TORCH_BYTES = 5_000_000_000
"""Bytes of torch's build for CUDA 13 with NVIDIA's libraries on disk (torch 2.11.0 has 4.7 GB, and headers)."""
_LOOK = """
import importlib.metadata as metadata, json, os, sys
found = []
for one in metadata.distributions():
    origin = json.loads(one.read_text("direct_url.json") or "{}")
    nbytes = sum(os.path.getsize(path) for path in map(one.locate_file, one.files or ()) if os.path.exists(path))
    folder = bool(origin.get("dir_info", {}).get("editable"))
    found.append((one.metadata["Name"], one.version, origin.get("url", ""), folder, nbytes))
prefix = sys.prefix if sys.prefix != sys.base_prefix else os.path.abspath(".venv")
print(json.dumps({"prefix": prefix, "packages": found}))
"""
"""A program for the old environment's interpreter: it lists the packages without importing them."""
_OLDEST_RELEASE = ".".join(map(str, (*OLDEST_TORCH, 0)))
_MADE_ANEW = ("torch", "triton", "pip", "setuptools", "wheel")
"""Packages that the new environment gets in its own versions, besides those of NVIDIA."""


class Plan(NamedTuple):
    """An environment that is to be made."""

    python: str
    """Interpreter of the old environment."""
    folder: Path
    """Folder of the new one."""
    requirements: tuple[str, ...]
    """Arguments of pip, torch's first."""
    nbytes: int
    """Bytes on disk, about."""

    @property
    def new_python(self) -> Path:
        """Interpreter of the new environment."""
        return self.folder / "bin" / "python"


def plan(python: str) -> Plan:
    """Return what a new environment beside that of `python` will have. Raises `UsageError` if there is none to make."""
    program = interpreter([python])
    prefix, packages = _looked(program)
    folder = prefix.with_name(f"{prefix.name}-cuda")
    if folder.exists():
        raise UsageError(f"{folder} exists; name its Python in the command, or remove it")
    requirements, nbytes = ["torch"], TORCH_BYTES
    for one in packages:
        if one.name == "torch":
            requirements[0] = _torch(one.version)
        elif one.name not in _MADE_ANEW and not one.name.startswith("nvidia-"):
            requirements += one.requirement
            nbytes += one.nbytes
    return Plan(program, folder, tuple(requirements), nbytes)


class _Package(NamedTuple):
    name: str
    version: str
    origin: str
    """Address from which it was installed; empty for the registry."""
    editable: bool
    nbytes: int

    @property
    def requirement(self) -> list[str]:
        """Arguments of pip that install it again."""
        if self.origin.startswith("file://"):
            return [*(["--editable"] if self.editable else []), self.origin.removeprefix("file://")]
        release, mark, _ = self.version.partition("+")
        return [self.origin or f"{self.name}{'===' if mark else '=='}{release}"]


def _looked(program: str) -> tuple[Path, list[_Package]]:
    """Return the folder of an environment and its packages."""
    done = subprocess.run([program, "-c", _LOOK], capture_output=True, text=True)
    if done.returncode:
        raise UsageError(f"{program} could not list its packages: {one_line(done.stderr)[-300:]}")
    found = json.loads(done.stdout)
    return Path(found["prefix"]), [_Package(*one) for one in found["packages"]]


def _torch(version: str) -> str:
    """Requirement of the same release without the mark of its build, or of the oldest that is known."""
    release = version.partition("+")[0]
    known = tuple(int(one) for one in release.split(".")[:2] if one.isdigit()) >= OLDEST_TORCH
    return f"torch==={release if known else _OLDEST_RELEASE}"


def make(wanted: Plan, tell: Callable[[str], None]) -> None:
    """Make the environment. Raises `UsageError` with the complaint of pip, or if its torch is no CUDA build.

    An environment that could not be made is removed.
    """
    tell(f"making {wanted.folder}")
    try:
        _run([wanted.python, "-m", "venv", str(wanted.folder)])
        tell(f"installing torch for CUDA and {len(wanted.requirements) - 1} packages; minutes")
        _run([str(wanted.new_python), "-m", "pip", "install", "--quiet", *wanted.requirements])
        environment([str(wanted.new_python)])
    except BaseException:
        shutil.rmtree(wanted.folder, ignore_errors=True)
        raise


def _run(command: list[str]) -> None:
    # A folder that is on the path of assay's own Python is none of the new one's.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=clean)
    if done.returncode:
        complaint = next((one for one in reversed(done.stderr.splitlines()) if "ERROR" in one), done.stderr)
        raise UsageError(f"{' '.join(command[:4])} failed: {one_line(complaint)[-300:]}")
