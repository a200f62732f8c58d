"""The library is built once for each torch and each state of the sources; two builders do not disturb each other."""

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from assay.absent import cuda_library
from assay.absent.cuda_library import (
    LIBRARY,
    SOURCES,
    cache_name,
    library_folder,
    library_of,
    prototypes,
    source,
    wanted_symbols,
)
from assay.absent.toolchain import ScriptEnvironment
from assay.errors import UsageError

LISTING = """
libtorch_cuda.so:
                 U cudaMalloc@libcudart.so.13
                 U cublasSgemm_v2@libcublas.so.13
                 U cuLaunchKernel
                 w _ITM_deregisterTMCloneTable
                 U malloc@GLIBC_2.2.5
"""


def place(folder: Path, torch: str = "2.11.0+cu130") -> ScriptEnvironment:
    return ScriptEnvironment("python", torch, "13.0", folder / "torch")


def test_wanted_symbols_are_those_of_cuda_s_libraries() -> None:
    assert wanted_symbols(LISTING) == {"cudaMalloc", "cublasSgemm_v2", "cuLaunchKernel"}


def test_the_name_of_the_cache_follows_torch_and_symbols(tmp_path: Path) -> None:
    one = cache_name(place(tmp_path), {"cudaMalloc"})
    assert one.startswith("torch-2.11.0+cu130-")
    assert one == cache_name(place(tmp_path), {"cudaMalloc"})
    assert one != cache_name(place(tmp_path), {"cudaMalloc", "cudaFree"})
    assert one != cache_name(place(tmp_path, "2.12.0+cu130"), {"cudaMalloc"})


def test_the_name_of_the_cache_follows_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache_name(place(tmp_path), ())
    shutil.copytree(SOURCES, tmp_path / "c")
    (tmp_path / "c" / "counts.c").write_text("/* another text */")
    monkeypatch.setattr(cuda_library, "SOURCES", tmp_path / "c")
    assert cache_name(place(tmp_path), ()) != before


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders in which a library was compiled; here it is an empty file."""
    folders: list[Path] = []

    def instead(where: ScriptEnvironment, wanted: set[str], folder: Path) -> None:
        folders.append(folder)
        (folder / LIBRARY).touch()

    monkeypatch.setattr(cuda_library, "compile_library", instead)
    monkeypatch.setattr(cuda_library, "check_tools", lambda where: None)
    return folders


def test_it_is_built_once_and_says_so(tmp_path: Path, compiled: list[Path]) -> None:
    said: list[str] = []
    first = library_folder(place(tmp_path), tmp_path / "cache", said.append)
    again = library_folder(place(tmp_path), tmp_path / "cache", said.append)
    assert first == again
    assert (first / LIBRARY).exists()
    assert len(compiled) == 1
    assert said == ["building the absent GPU for torch 2.11.0+cu130; a few seconds, once"]


def test_a_builder_that_comes_second_takes_the_first_one_s(
    tmp_path: Path, compiled: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache" / cache_name(place(tmp_path), ())

    def beside(where: ScriptEnvironment) -> None:
        folder.mkdir(parents=True)
        (folder / LIBRARY).write_text("the other's")

    monkeypatch.setattr(cuda_library, "check_tools", beside)
    assert library_folder(place(tmp_path), tmp_path / "cache", lambda text: None) == folder
    assert (folder / LIBRARY).read_text() == "the other's"
    assert [one.name for one in (tmp_path / "cache").iterdir()] == [folder.name]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed here")
def test_a_complaint_of_gcc_is_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"gcc could not build the absent GPU: .*error.*headers may be too new"):
        cuda_library._gcc(["-x", "c", "-E", "-"], '#include "nothing_of_this_name.h"\n')


@pytest.mark.parametrize("path", sorted(SOURCES.glob("*.c")), ids=lambda path: path.name)
def test_sources_are_readable(path: Path) -> None:
    """A source opens with a comment, and has no line that a reader must scroll for."""
    text = path.read_text(encoding="utf-8")
    assert text.startswith("/* ")
    assert max(map(len, text.splitlines())) <= 160
    assert text.count("\n") <= 400


def _headers() -> list[Path]:
    torch = find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    return sorted((Path(torch.origin).parents[1] / "nvidia").glob("*/include"))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed here")
@pytest.mark.parametrize("path", sorted(SOURCES.glob("*.c")), ids=lambda path: path.name)
def test_sources_compile_without_a_warning(path: Path) -> None:
    folders = [one for one in _headers() if (one / "cuda_runtime_api.h").exists()]
    if not folders:
        pytest.skip("CUDA's headers are not beside this torch")
    headers = [f"-I{one}" for one in (SOURCES, *_headers())]
    flags = [*cuda_library.FLAGS, "-Wall", "-Wextra", "-Werror", *headers, "-idirafter", str(SOURCES / "headers")]
    done = subprocess.run(["gcc", *flags, "-fsyntax-only", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


HEADER = """
typedef struct Context *cusolverDnHandle_t; typedef int cusolverStatus_t; typedef int cudaError_t;
typedef int cublasStatus_t;
typedef void *cublasHandle_t; typedef int CUresult; typedef struct { int a; } CUuuid;
cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t *handle);
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle);
extern cusolverStatus_t cusolverDnSpotrf_bufferSize(cusolverDnHandle_t handle, int n, float *A, int *Lwork);
extern __attribute__((visibility("default"))) cudaError_t cudaUnheardOf(int device, size_t *bytes);
cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, const float *A, float *C);
cublasStatus_t cublasSdot_v2(cublasHandle_t handle, int n, const float *x, float *result);
CUresult cuCallWith(void (*function)(void *, int), const int sizes[]);
struct Thing cudaThing(void);
static inline int cudaInline(int x) { return x; }
const char *cusparseGetErrorString(int status);
"""


def test_prototypes_are_read_with_their_parameters() -> None:
    found = prototypes(HEADER)
    assert found["cusolverDnSpotrf_bufferSize"].parameters == (
        "cusolverDnHandle_t handle",
        "int n",
        "float *A",
        "int *Lwork",
    )
    assert found["cudaUnheardOf"].result == "cudaError_t"
    assert found["cuCallWith"].parameters == ("void (*function)(void *, int)", "const int sizes[]")
    assert found["cudaThing"].parameters == ()
    assert "cudaInline" not in found


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("cudaMalloc", "CUDA"),
        ("__cudaRegisterFunction", "CUDA"),
        ("cublasLtMatmul", "cuBLAS"),
        ("cudnnRNNForward", "cuDNN's recurrent kernels"),
        ("cudnnCreate", "cuDNN"),
        ("cusolverDnCreate", "cuSOLVER"),
        ("cusparseLtInit", "cuSPARSELt"),
        ("cusparseCreate", "cuSPARSE"),
        ("ncclCommInitRank", "NCCL"),
        ("cuMemCreate", "the driver"),
    ],
)
def test_a_function_belongs_to_a_library(name: str, title: str) -> None:
    library = library_of(name)
    assert library is not None
    assert library.title == title


@pytest.mark.parametrize("name", ["cuFileRead", "ncclAllReduce", "nvrtcVersion", "malloc"])
def test_some_functions_stay_real(name: str) -> None:
    assert library_of(name) is None


def test_functions_defined_by_hand_are_not_generated() -> None:
    text = source(prototypes(HEADER), {"cusolverDnCreate", "cublasSgemm_v2"}, {"cublasSgemm_v2"}, ())
    assert "cusolverDnCreate(" in text
    assert "cublasSgemm_v2(" not in text
    assert "cudaThing" not in text  # no value of a structure means a failure


def test_a_function_without_a_prototype_returns_zero() -> None:
    assert "int cublasOld(void) {  return 0; }" in source({}, {"cublasOld"}, (), ())


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed here")
def test_stand_ins_write_what_they_return(tmp_path: Path) -> None:
    """Compiled and called: sizes and handles are written, a product is counted, an unknown function fails."""
    text = source(prototypes(HEADER), set(prototypes(HEADER)), (), ())
    program = """
#include <stdio.h>
#include <stdint.h>
typedef void *cudaStream_t;
static int products, unknown;
void *absent_handle(void) { return calloc(1, 64); }
void absent_product(cudaStream_t stream) { products += stream == NULL; }
void absent_written(const void *pointer) { (void)pointer; }
void absent_unknown(const char *library, const char *function, int runs) { unknown += 1 + runs; }
""" + HEADER.replace("struct Thing cudaThing(void);", "")
    main = """
int main(void) {
    cusolverDnHandle_t handle = NULL; int work = 7; size_t bytes = 7; float result = 7; void *blas[8] = {0};
    cusolverDnCreate(&handle);
    cusolverDnSpotrf_bufferSize(handle, 3, NULL, &work);
    int failed = cudaUnheardOf(0, &bytes);
    cublasSgemm_v2(blas, NULL, NULL);
    cublasSdot_v2(blas, 3, NULL, &result);
    int text = *cusparseGetErrorString(1);
    printf("%d %d %d %g %d %d %d", handle != NULL, work, failed, (double)result, products, unknown, text);
    return cusolverDnDestroy(handle);
}
"""
    body = text.replace('#include "absent.h"\n', program)
    (tmp_path / "main.c").write_text(f"{body}{main}")
    made = tmp_path / "main"
    subprocess.run(["gcc", "-w", "-o", str(made), str(tmp_path / "main.c")], check=True)
    done = subprocess.run([made], capture_output=True, text=True)
    # A buffer's size is unknown and the script goes on (2); a function that nobody knows fails with 801 (1).
    assert (done.returncode, done.stdout) == (0, "1 0 801 0 2 3 0")
