"""Backward passes in which gradients of one tensor meet: peaks on an absent GPU, or on fake tensors.

    python backward_cases.py COUNT SEED          with torch's CUDA build on an absent GPU
    python backward_cases.py COUNT SEED DEVICE   on fake tensors, with the library of hooks that LIBRARY names

The bytes that each backward pass takes at most are printed; COUNT and SEED mean nothing here.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

ROWS, WIDTH = 4096, 1024


def backward_cases(torch: Any) -> list[Callable[[], Any]]:
    """Return functions that make losses."""
    first, second = (torch.empty(WIDTH, WIDTH, device="cuda") for _ in range(2))

    def leaf() -> Any:
        return torch.empty(ROWS, WIDTH, device="cuda", requires_grad=True) * 1.0

    def residual() -> Any:
        x = leaf()
        return (x + x @ first).sum()

    def two_products() -> Any:
        x = leaf()
        return ((x @ first) * (x @ second)).sum()

    def rows() -> Any:
        x, summed = leaf(), 0
        for index in range(4):
            summed = summed + x[index] * 2
        return summed.sum()  # type: ignore[attr-defined]

    def halves() -> Any:
        x = leaf()
        return (x[:, : WIDTH // 2] * x[:, WIDTH // 2 :]).sum()

    return [residual, two_products, rows, halves]


def measured() -> list[int]:
    """Return the peaks from torch's allocator."""
    import torch

    found = []
    for loss_of in backward_cases(torch):
        loss_of().backward()
        loss = loss_of()
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_stats()["requested_bytes.all.current"]
        loss.backward()
        found.append(torch.cuda.memory_stats()["requested_bytes.all.peak"] - before)
        del loss
    return found


def traced(device: str) -> list[int]:
    """Return the peaks of a trace."""
    import torch

    from assay.absent.gpus import absent_device
    from assay.fake.traced_step import fake_gpu

    found = []
    with fake_gpu(absent_device(device)) as ledger:
        for loss_of in backward_cases(torch):
            loss = loss_of()
            ledger.begin([], {})
            before = ledger.alive_bytes
            loss.backward()
            found.append(ledger.peak().nbytes - before)
            del loss
    return found


if __name__ == "__main__":
    if len(sys.argv) > 3:
        from pathlib import Path

        from assay.absent.gpus import absent_device
        from assay.fake import hooks

        loaded = hooks.load(Path(os.environ["LIBRARY"]))
        import torch  # noqa: F401

        hooks.begin(loaded, absent_device(sys.argv[3]))
        print("\n".join(map(str, traced(sys.argv[3]))), flush=True)
        # As the processes of traces do: autograd's thread of the device may else end the process while Python stops.
        os._exit(0)
    else:
        print("\n".join(map(str, measured())))
