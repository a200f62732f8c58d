"""Random sums and means: what CUDA's kernel takes inside, on an absent GPU, or by the rule.

    python reductions.py COUNT SEED               with torch's CUDA build on an absent GPU
    python reductions.py COUNT SEED DEVICE        by the rule

The bytes that each takes beside its result are printed.
"""

import random
import sys
from collections.abc import Iterator
from typing import Any

ITEMSIZE = {"float32": 4, "bfloat16": 4, "float16": 4, "float64": 8}


def cases(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield shapes and what is reduced, most of them as backward passes have them."""
    chance = random.Random(seed)
    sizes = (1, 2, 3, 7, 12, 64, 65, 199, 384, 512, 768, 1000, 1393, 2048, 8000)
    while count:
        shape = [chance.choice(sizes) for _ in range(chance.choice((1, 2, 2, 3, 3)))]
        total = 1
        for one in shape:
            total *= one
        if total > 2**28:
            continue
        count -= 1
        yield {
            "shape": shape,
            "swapped": len(shape) > 1 and chance.random() < 0.2,
            "reduced": sorted(chance.sample(range(len(shape)), chance.randint(1, len(shape)))),
            "dtype": chance.choice(tuple(ITEMSIZE)),
            "mean": chance.random() < 0.3,
        }


def measured(case: dict[str, Any]) -> int:
    """Return the bytes inside, from torch's allocator."""
    import torch

    x = torch.empty(case["shape"], dtype=getattr(torch, case["dtype"]), device="cuda")
    x = x.transpose(0, 1) if case["swapped"] else x
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()["requested_bytes.all.current"]
    result = x.mean(case["reduced"]) if case["mean"] else x.sum(case["reduced"])
    peak = torch.cuda.memory_stats()["requested_bytes.all.peak"]
    return int(peak - before - result.untyped_storage().nbytes())


def predicted(case: dict[str, Any], device: str) -> int:
    """Return the bytes inside, by the rule."""
    from assay.absent.gpus import absent_device
    from assay.cost.reductions import Reduction, inside_bytes

    shape = list(case["shape"])
    strides = [1] * len(shape)
    for index in range(len(shape) - 2, -1, -1):
        strides[index] = strides[index + 1] * shape[index + 1]
    if case["swapped"]:
        shape[:2], strides[:2] = shape[1::-1], strides[1::-1]
    return inside_bytes(Reduction(shape, strides, case["reduced"], ITEMSIZE[case["dtype"]]), absent_device(device).gpu)


if __name__ == "__main__":
    drawn = cases(int(sys.argv[1]), int(sys.argv[2]))
    if len(sys.argv) > 3:
        print("\n".join(str(predicted(one, sys.argv[3])) for one in drawn))
    else:
        print("\n".join(str(measured(one)) for one in drawn))
