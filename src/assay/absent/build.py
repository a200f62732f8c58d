"""Build the library for one torch, once, and keep it.

gcc compiles the sources of `c/` and the generated stand-ins with the headers that came with torch. The result is kept
in the cache of the home, under torch's version and a digest of all that went into it. The folder is made under another
name and renamed, so two commands that build at once do not disturb each other.
"""

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from assay.absent import stand_ins
from assay.absent.toolchain import ScriptEnvironment, check_tools
from assay.errors import UsageError, one_line
from assay.files import new_folder

SOURCES = Path(__file__).parent / "c"
"""Folder of the C sources."""
LIBRARY = "libcuda.so.1"
"""Name of the library: the driver's, because programs open that one by name."""
FLAGS = ("-std=gnu11", "-O1", "-fPIC", "-D_GNU_SOURCE", "-Dalignas=_Alignas")
"""Flags of gcc. Some headers of CUDA use C++'s word for an alignment."""
_EXTERNAL = re.compile(r"^\S+ [TWBDR] (\w+)", re.MULTILINE)


def built(place: ScriptEnvironment, cache: Path, tell: Callable[[str], None]) -> Path:
    """Return the folder with the library for an environment; build it if it is not there.

    `cache` is the folder under which it is kept. Raises `UsageError` if a tool or header is missing, or gcc fails.
    """
    wanted = wanted_symbols(symbols(place.libraries, "--undefined-only"))
    folder = cache / cache_name(place, wanted)
    if (folder / LIBRARY).exists():
        return folder
    check_tools(place)
    tell(f"building the absent GPU for torch {place.torch}; a few seconds, once")
    with new_folder(folder, lambda there: (there / LIBRARY).exists()) as made:
        compile_library(place, wanted, made)
    return folder


def cache_name(place: ScriptEnvironment, wanted: Iterable[str]) -> str:
    """Return the name of the folder for one torch: its version, and a digest of sources and wanted symbols."""
    digest = hashlib.sha256()
    for path in sorted(one for one in SOURCES.rglob("*") if one.is_file()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update(Path(stand_ins.__file__).read_bytes())
    digest.update("\n".join((*sorted(wanted), str(place.folder), place.cuda)).encode())
    return f"torch-{place.torch}-{digest.hexdigest()[:16]}"


def symbols(files: Sequence[Path], which: str) -> str:
    """Return what `nm` lists of some files; an empty text for those that have none."""
    command = ["nm", which, *([] if which == "--defined-only" else ["-D"]), *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True).stdout if shutil.which("nm") else ""


def wanted_symbols(listing: str) -> set[str]:
    """Return the functions of CUDA's libraries that a listing of `nm --undefined-only` has, without their versions."""
    names = (line.split()[-1].split("@")[0] for line in listing.splitlines() if line.split())
    return {name for name in names if stand_ins.library_of(name)}


def compile_library(place: ScriptEnvironment, wanted: set[str], folder: Path) -> None:
    """Compile all sources into a library in `folder`. Raises `UsageError` with gcc's first complaint."""
    headers = tuple(one for one in stand_ins.HEADERS if any((there / one).exists() for there in place.includes))
    flags = [*FLAGS, f"-I{SOURCES}", *(f"-I{one}" for one in place.includes), "-idirafter", str(SOURCES / "headers")]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        objects = [Path(scratch) / f"{source.stem}.o" for source in sorted(SOURCES.glob("*.c"))]

        def compiled(made: Path) -> None:
            _gcc([*flags, "-Wall", "-Wextra", "-c", str(SOURCES / f"{made.stem}.c"), "-o", str(made)])

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(compiled, objects))
        declared = stand_ins.prototypes(_gcc([*flags, "-E", "-P", "-x", "c", "-"], stand_ins.includes(headers)))
        defined = set(_EXTERNAL.findall(symbols(objects, "--defined-only")))
        written = Path(scratch) / "stand_ins.c"
        written.write_text(stand_ins.source(declared, wanted, defined, headers))
        objects.append(written.with_suffix(".o"))
        _gcc([*flags, "-w", "-c", str(written), "-o", str(objects[-1])])
        named = ["-shared", f"-Wl,-soname,{LIBRARY}", *map(str, objects), "-o", str(folder / LIBRARY)]
        _gcc([*named, "-lpthread", "-ldl", "-lm"])
    for name in ("libcuda.so", "libnvidia-ml.so.1"):
        (folder / name).symlink_to(LIBRARY)


def _gcc(arguments: Sequence[str], text: str = "") -> str:
    done = subprocess.run(["gcc", *arguments], input=text, capture_output=True, text=True)
    if done.returncode:
        complaint = next((one for one in done.stderr.splitlines() if "error" in one), done.stderr)
        raise UsageError(
            f"gcc could not build the absent GPU: {one_line(complaint)[:300]}; torch's headers may be too new"
        )
    return done.stdout
