"""Generated stand-ins: prototypes are read from headers, and every out-parameter is written."""

import shutil
import subprocess
from pathlib import Path

import pytest

from assay.absent.stand_ins import library_of, prototypes, source

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
