"""The library in the place of CUDA's, built for one torch, once, and kept.

gcc compiles the sources of `c/` and the generated stand-ins with the headers that came with torch. The result is kept
in the cache of the home, under torch's version and a digest of all that went into it. The folder is made under another
name and renamed, so two commands that build at once do not disturb each other.

Stand-ins are for the functions of CUDA's libraries that no C source of `c/` defines. They are made from the prototypes
in the headers that come with torch. A stand-in writes every number, size and handle that it should return, and says if
its library's answer is not known. A function without a prototype returns 0.
"""

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from assay.absent.toolchain import ScriptEnvironment, check_tools
from assay.errors import UsageError, one_line
from assay.files import new_folder

HEADERS = (
    *("cuda.h", "cuda_runtime_api.h", "cublas_v2.h", "cublasLt.h", "cudnn.h", "cufftXt.h", "cusolverDn.h"),
    *("cusparse.h", "cusparseLt.h", "cupti.h", "nccl.h"),
)
"""Headers whose prototypes are read, where they are there."""


class Prototype(NamedTuple):
    """A function as its header declares it."""

    result: str
    name: str
    parameters: tuple[str, ...]


class CudaLibrary(NamedTuple):
    """One library of CUDA, and the behaviour of its functions if nobody wrote them by hand."""

    title: str
    names: str
    """Regular expression of the names of its functions."""
    refused: str = r"(?!)"
    """Names of functions that fail, because a script cannot go on without their results."""
    status: int = 0
    """Status that a refused function returns."""
    unknown: str = r"(?!)"
    """Names of functions that run, but whose workspace is not known."""


_HARMLESS = r"Logs|Set|Profiler|Trim|Destroy|Prefetch|Advise|Unload|Release|Flush|ResetPersisting"
LIBRARIES = (
    CudaLibrary("CUDA", r"(__)?cuda[A-Z]\w*", rf"(?!\w*({_HARMLESS}))", 801),
    CudaLibrary("cuBLAS", r"cublas\w*"),
    CudaLibrary(
        "cuDNN's recurrent kernels", r"cudnn\w*RNN\w*", r"\w*(Size|Sizes|Forward|BackwardData_v8|Params)$", 3000
    ),
    CudaLibrary("cuDNN", r"cudnn\w*", unknown=r"\w*(WorkspaceSize|Algorithm\w*)$"),
    CudaLibrary("cuFFT", r"cufft\w*"),
    CudaLibrary("cuSOLVER", r"cusolver\w*", unknown=r"\w*_bufferSize$"),
    CudaLibrary("cuSPARSELt", r"cusparseLt\w*", unknown=r"\w*Workspace$"),
    CudaLibrary("cuSPARSE", r"cusparse\w*", unknown=r"\w*(bufferSize\w*|_workEstimation)$"),
    CudaLibrary("NCCL", r"ncclComm(Init\w*|Split|Shrink)", r"", 2),
    CudaLibrary("CUPTI", r"cupti\w*"),
    CudaLibrary("the driver", r"cu(?!File)[A-Z]\w*", rf"(?!\w*({_HARMLESS}))", 801),
)
"""Libraries in the order in which a name is looked for."""
_PRODUCT = re.compile(
    r"cublas\w*?(gemm|Gemm|gemv|ger[cu]?|dot[cu]?|Dot|symm|hemm|symv|hemv|trmm|trmv|tr[sm]|syr|her|Matmul$)"
)
"""Functions that multiply, or solve with a triangle."""
_RETURNS = re.compile(r"Create|create|Get|Size|Find|Init|Nnz|zeroPivot|Version|Subscribe|WorkEstimation|LogsRegister")
"""Names of functions that return something through a pointer."""
_NO_NUMBER = re.compile(r"\b(const|void|float|double|char|cuComplex|cuDoubleComplex|__half|FILE)\b")
_DECLARED = re.compile(r"(?:^|[;}])\s*(?:extern\s+)?([A-Za-z_][\w\s*]*?)\b((?:__cuda|cu|nccl)\w+)\s*\(")
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)|__asm__\s*\([^)]*\)|__extension__")


def prototypes(text: str) -> dict[str, Prototype]:
    """Return the functions that preprocessed headers declare, by name."""
    plain = re.sub(r"\s+", " ", _ATTRIBUTE.sub(" ", text))
    found: dict[str, Prototype] = {}
    for match in _DECLARED.finditer(plain):
        end = _closing(plain, match.end() - 1)
        if plain[end + 1 : end + 3].strip()[:1] == ";" and "typedef" not in match[1]:
            found[match[2]] = Prototype(match[1].strip(), match[2], tuple(_parts(plain[match.end() : end])))
    return found


def _closing(text: str, opening: int) -> int:
    """Index of the parenthesis that closes the one at `opening`."""
    depth = 0
    for index in range(opening, len(text)):
        depth += (text[index] == "(") - (text[index] == ")")
        if depth == 0:
            return index
    return len(text)


def _parts(text: str) -> Iterator[str]:
    """Parameters of a declaration; commas inside of parentheses do not divide it."""
    depth, start = 0, 0
    for index, one in enumerate(text):
        depth += (one == "(") - (one == ")")
        if one == "," and depth == 0:
            yield text[start:index].strip()
            start = index + 1
    last = text[start:].strip()
    if last not in ("", "void"):
        yield last


def library_of(name: str) -> CudaLibrary | None:
    """Return the library to which a function belongs; None if it is not one of CUDA's, or stays real."""
    return next((one for one in LIBRARIES if re.fullmatch(one.names, name)), None)


def includes(headers: Collection[str]) -> str:
    """Return C source that includes some headers."""
    return "".join(f"#include <{one}>\n" for one in headers)


def source(
    declared: dict[str, Prototype], wanted: Collection[str], defined: Collection[str], headers: Collection[str]
) -> str:
    """Return C source with a stand-in for each function that is wanted or belongs to CUDA, and is not `defined`."""
    ours = {name for name in declared if re.match(r"(cuda|cu)[A-Z]", name)}
    names = sorted(
        name for name in {*wanted, *ours} - set(defined) if library_of(name) and _possible(declared.get(name))
    )
    head = includes(("string.h", "stdlib.h", *headers))
    return f'{head}#include "absent.h"\n\n' + "".join(_stand_in(name, declared.get(name)) for name in names)


def _possible(declared: Prototype | None) -> bool:
    """False for the few functions that return a structure: no value of it means a failure."""
    return declared is None or "struct " not in declared.result or "*" in declared.result


def _stand_in(name: str, declared: Prototype | None) -> str:
    library = library_of(name)
    assert library is not None
    refused, unknown = (re.match(one, name) is not None for one in (library.refused, library.unknown))
    said = [f'absent_unknown("{library.title}", "{name}", {int(unknown)});'] if refused or unknown else []
    status = library.status if refused else 0
    if declared is None:
        return f"int {name}(void) {{ {' '.join(said)} return {status}; }}\n"
    parameters, names = _named(declared.parameters)
    lines = [*said, *_product(name, names, parameters), *_written(name, parameters, names)]
    body = " ".join(lines)
    if declared.result == "void":
        return f"void {name}({', '.join(parameters) or 'void'}) {{ {body} }}\n"
    value = '""' if "*" in declared.result else str(status)
    return (
        f"{declared.result} {name}({', '.join(parameters) or 'void'}) {{ {body} return ({declared.result}){value}; }}\n"
    )


def _named(parameters: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Parameters with a name each, and the names."""
    whole, names = [], []
    for index, one in enumerate(parameters):
        function = re.search(r"\(\s*\*\s*(\w*)\s*\)", one)
        found = function or re.search(r"(?<=[\s*])(\w+)\s*(?:\[[^]]*\]\s*)*$", one)
        name = found[1] if found else ""
        if not function and (not name or not re.search(r"\w.*[\s*]" + re.escape(name), one) or name in _TYPES):
            name = f"given{index}"
            one = f"{one} {name}"
        whole.append(one)
        names.append(name)
    return whole, names


_TYPES = frozenset(
    {"int", "unsigned", "float", "double", "char", "long", "size_t", "int64_t", "uint64_t", "uint32_t", "void"}
)


def _product(name: str, names: list[str], parameters: list[str]) -> list[str]:
    """Statements of a product: its count, and what it writes."""
    if not name.startswith("cublas"):
        return []
    written = [
        f"absent_written({one});"
        for one, whole in zip(names, parameters, strict=True)
        if "*" in whole and not whole.startswith("const") and "const *" not in whole
    ]
    if not _PRODUCT.match(name) or "SetAttribute" in name or "Create" in name or "Destroy" in name:
        return written if re.match(r"cublas[SDCZI]", name) and "Set" not in name else []
    stream = "stream" if name == "cublasLtMatmul" else f"*(cudaStream_t *){names[0]}"
    return [f"absent_product({stream});", *written]


def _written(name: str, parameters: list[str], names: list[str]) -> list[str]:
    """Statements that write what the function returns through pointers, or free what it destroys."""
    if "Destroy" in name or "destroy" in name:
        by_value = len(names) == 1 and "*" not in parameters[0]
        return (
            [f"if (__builtin_classify_type({names[0]}) == 5) free((void *)(uintptr_t){names[0]});"] if by_value else []
        )
    lines = []
    for one, whole in zip(names, parameters, strict=True):
        single = whole.count("*") == 1 and "(" not in whole and not _NO_NUMBER.search(whole)
        if single and _RETURNS.search(name):
            make = f"void *made = absent_handle(); memcpy({one}, &made, sizeof made);"
            handle = f"if (__builtin_classify_type(*{one}) == 5) {{ {make} }}"
            lines.append(f"if ({one}) {{ memset({one}, 0, sizeof *{one}); {handle if 'reate' in name else ''} }}")
        elif one == "result" and name.startswith("cublas"):
            lines.append(f"if ({one}) memset((void *){one}, 0, sizeof *{one});")
    return lines


SOURCES = Path(__file__).parent / "c"
"""Folder of the C sources."""
LIBRARY = "libcuda.so.1"
"""Name of the library: the driver's, because programs open that one by name."""
FLAGS = ("-std=gnu11", "-O1", "-fPIC", "-D_GNU_SOURCE", "-Dalignas=_Alignas")
"""Flags of gcc. Some headers of CUDA use C++'s word for an alignment."""
_EXTERNAL = re.compile(r"^\S+ [TWBDR] (\w+)", re.MULTILINE)


def library_folder(place: ScriptEnvironment, cache: Path, tell: Callable[[str], None]) -> Path:
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
    digest.update(Path(__file__).read_bytes())
    digest.update("\n".join((*sorted(wanted), str(place.folder), place.cuda)).encode())
    return f"torch-{place.torch}-{digest.hexdigest()[:16]}"


def symbols(files: Sequence[Path], which: str) -> str:
    """Return what `nm` lists of some files; an empty text for those that have none."""
    command = ["nm", which, *([] if which == "--defined-only" else ["-D"]), *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True).stdout if shutil.which("nm") else ""


def wanted_symbols(listing: str) -> set[str]:
    """Return the functions of CUDA's libraries that a listing of `nm --undefined-only` has, without their versions."""
    names = (line.split()[-1].split("@")[0] for line in listing.splitlines() if line.split())
    return {name for name in names if library_of(name)}


def compile_library(place: ScriptEnvironment, wanted: set[str], folder: Path) -> None:
    """Compile all sources into a library in `folder`. Raises `UsageError` with gcc's first complaint."""
    headers = tuple(one for one in HEADERS if any((there / one).exists() for there in place.includes))
    flags = [*FLAGS, f"-I{SOURCES}", *(f"-I{one}" for one in place.includes), "-idirafter", str(SOURCES / "headers")]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        objects = [Path(scratch) / f"{source.stem}.o" for source in sorted(SOURCES.glob("*.c"))]

        def compiled(made: Path) -> None:
            _gcc([*flags, "-Wall", "-Wextra", "-c", str(SOURCES / f"{made.stem}.c"), "-o", str(made)])

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(compiled, objects))
        declared = prototypes(_gcc([*flags, "-E", "-P", "-x", "c", "-"], includes(headers)))
        defined = set(_EXTERNAL.findall(symbols(objects, "--defined-only")))
        written = Path(scratch) / "stand_ins.c"
        written.write_text(source(declared, wanted, defined, headers))
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
