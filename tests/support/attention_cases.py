"""Random calls of attention, whose kernel torch chooses: with torch's own choice on CUDA, or as a trace makes it.

    python attention_cases.py COUNT SEED          with torch's CUDA build on an absent GPU
    python attention_cases.py COUNT SEED DEVICE   on fake tensors, with the library of hooks that LIBRARY names

A name of a kernel is printed for each case.
"""

import os
import random
import sys
from collections.abc import Iterator
from typing import Any

NAMES = {0: "math", 1: "flash", 2: "memory-efficient", 3: "cuDNN"}


def cases(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield shapes, dtypes and arguments of calls, most of them as models make them."""
    chance = random.Random(seed)
    for _ in range(count):
        heads = chance.choice((1, 2, 4, 6, 8))
        key_heads = chance.choice((heads, heads, heads, 1, heads // 2 or 1))
        width = chance.choice((8, 16, 20, 32, 36, 64, 64, 64, 80, 96, 128, 128, 192, 200, 224, 240, 256, 264))
        length = chance.choice((1, 2, 7, 31, 64, 128, 199, 512))
        masked = chance.random() < 0.3
        yield {
            "rows": chance.choice((1, 2, 3)),
            "heads": heads,
            "key_heads": key_heads,
            "width": width,
            "value_width": chance.choice((width, width, width, 64, 128)),
            "length": length,
            "keys": chance.choice((length, length, length, 1, 64)),
            "dtype": chance.choice(("float32", "bfloat16", "bfloat16", "float16", "float64")),
            "mask": chance.choice(("rows", "full", "strided")) if masked else "",
            "dropout": chance.choice((0.0, 0.0, 0.1, 0.2, 0.125, 0.25)),
            "causal": not masked and chance.random() < 0.5,
            "grouped": key_heads not in (heads, 1) or chance.random() < 0.5,
            "grad": chance.random() < 0.8,
            "layout": chance.choice(("contiguous", "projected", "strided")),
        }


def arguments(case: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call, as tensors on CUDA."""
    import torch

    dtype = getattr(torch, case["dtype"])

    def made(heads: int, length: int, width: int) -> torch.Tensor:
        if case["layout"] == "contiguous":
            one = torch.empty(case["rows"], heads, length, width, dtype=dtype, device="cuda")
        elif case["layout"] == "projected":
            one = torch.empty(case["rows"], length, heads, width, dtype=dtype, device="cuda").transpose(1, 2)
        else:
            one = torch.empty(case["rows"], heads, width, length, dtype=dtype, device="cuda").transpose(2, 3)
        return one.requires_grad_(case["grad"])

    query = made(case["heads"], case["length"], case["width"])
    key = made(case["key_heads"], case["keys"], case["width"])
    value = made(case["key_heads"], case["keys"], case["value_width"])
    shape = {"rows": (case["length"], case["keys"]), "full": (case["rows"], 1, case["length"], case["keys"])}
    mask = None
    if case["mask"] == "strided":
        mask = torch.empty(case["keys"], case["length"], dtype=dtype, device="cuda").t()
    elif case["mask"]:
        mask = torch.empty(shape[case["mask"]], dtype=torch.bool, device="cuda")
    options = {"dropout_p": case["dropout"], "is_causal": case["causal"], "enable_gqa": case["grouped"]}
    return [query, key, value, mask], options


def chosen(case: dict[str, Any]) -> str:
    """Return torch's own choice on CUDA."""
    import torch

    given, options = arguments(case)
    try:
        return NAMES[torch._fused_sdp_choice(*given, **options)]
    except RuntimeError as error:
        return f"refused: {str(error).splitlines()[0][:40]}"


def traced(case: dict[str, Any], device: str) -> str:
    """Return the kernel that attention calls on fake tensors."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    from assay.absent.gpus import absent_device
    from assay.fake.traced_step import fake_gpu

    with fake_gpu(absent_device(device)) as ledger, torch.set_grad_enabled(True):
        given, options = arguments(case)
        try:
            scaled_dot_product_attention(*given, **options)
        except RuntimeError as error:
            return f"refused: {str(error).splitlines()[0][:40]}"
        return next(iter(ledger.kernels), "math")


if __name__ == "__main__":
    drawn = cases(int(sys.argv[1]), int(sys.argv[2]))
    if len(sys.argv) > 3:
        from pathlib import Path

        from assay.absent.gpus import absent_device
        from assay.fake import hooks

        loaded = hooks.load(Path(os.environ["LIBRARY"]))
        import torch  # noqa: F401

        hooks.begin(loaded, absent_device(sys.argv[3]))
        print("\n".join(traced(one, sys.argv[3]) for one in drawn))
    else:
        print("\n".join(chosen(one) for one in drawn))
