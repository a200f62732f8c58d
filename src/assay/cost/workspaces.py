"""Workspaces that cuBLAS and cuBLASLt keep on a GPU, from torch's own allocator.

A thread takes them at its first product and keeps them. There are two threads: the caller's, and that of autograd,
which runs backward and what it recomputes.
"""

import os

from assay.cost.attention_tape import FLASH
from assay.cost.operation import Operation

KIB = 2**10
CALLER, AUTOGRAD = "caller", "autograd"
"""Threads that multiply."""
CUBLAS, CUBLASLT = "cublas", "cublaslt"
_LIBRARIES = {"aten.addmm": (CUBLAS, CUBLASLT), "aten._scaled_mm": (CUBLASLT,), FLASH: ()}
"""Libraries of products that use others than cuBLAS alone."""


def workspaces(capability: tuple[int, int]) -> dict[str, int]:
    """Return the bytes that each thread keeps on a GPU of a capability, by library."""
    return {CUBLAS: cublas_workspace(capability), CUBLASLT: cublaslt_workspace()}


def libraries(operation: Operation) -> tuple[str, ...]:
    """Return the libraries that an operation multiplies with in forward."""
    return _LIBRARIES.get(operation.name, (CUBLAS,)) if operation.kind == "contraction" else ()


def cublas_workspace(capability: tuple[int, int]) -> int:
    """Return the bytes that cuBLAS keeps for a thread: 4096 × 8 KiB on Hopper, else 4096 × 2 KiB and 16 × 8 KiB.

    Source: `aten/src/ATen/cuda/CublasHandlePool.cpp`, `parseChosenWorkspaceSize`; the variable
    ``CUBLAS_WORKSPACE_CONFIG`` replaces them with pairs ``:KIB:COUNT``. Rows: every one.
    """
    words = [int(one) for one in os.environ.get("CUBLAS_WORKSPACE_CONFIG", "").split(":") if one.isdigit()]
    if words and len(words) % 2 == 0:
        return sum(KIB * size * count for size, count in zip(words[::2], words[1::2], strict=True))
    return 4096 * 8 * KIB if capability == (9, 0) else 4096 * 2 * KIB + 16 * 8 * KIB


def cublaslt_workspace() -> int:
    """Return the bytes that cuBLASLt keeps for a thread: 1 MiB, or ``CUBLASLT_WORKSPACE_SIZE`` in KiB.

    Source: `aten/src/ATen/cuda/CUDABlas.cpp`, `getCUDABlasLtWorkspaceSize`. Rows: ``gpt2-124m`` has it and
    ``llama-3.2-1b``, whose products have no bias, lacks it.
    """
    return int(os.environ.get("CUBLASLT_WORKSPACE_SIZE", "1024")) * KIB
