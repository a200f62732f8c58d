"""Checks of dropout: the number of masks, their share of zeros, and equal masks in recomputation.

The number of zeros among n draws has a standard deviation of sqrt(n * p * (1 - p)), and may be off by five of
them. Masks drawn inside compiled code, a CUDA graph or a fused attention kernel are not seen, so they are not
checked. Ranks that draw from random streams of their own have no mask in common.
"""

import json
from collections.abc import Callable
from itertools import combinations
from math import sqrt
from operator import eq

from assay.config import ResolvedRun
from assay.records.trace import Trace

_DEVIATIONS = 5


def fault(trace: Trace, run: ResolvedRun) -> str:
    """Describe what is wrong with the masks of a step; empty if nothing is, or if they are not seen."""
    p, masks = run.model.dropout, trace.masks
    if run.model.own is not None:  # its layers draw what they will
        return ""
    if p > 0 and not trace.graphs.compiled and not trace.graphs.graph_replays:
        fused = trace.count("_scaled_dot_product_flash", "_scaled_dot_product_efficient", "_scaled_dot_product_cudnn")
        embedded = any(one.name.startswith("embedding.") for one in trace.parameters)
        due = trace.forwards * ((2 if fused else 3) * len(trace.blocks) + embedded)
        if masks.drawn != due:
            return f"dropout drew {masks.drawn} masks in forward instead of {due}"
    if masks.repeated:
        return f"{masks.repeated} of {masks.drawn} dropout masks equal an earlier mask of the step"
    if masks.elements and abs(masks.zeros - p * masks.elements) > _DEVIATIONS * sqrt(masks.elements * p * (1 - p)):
        return f"dropout zeroed {masks.zeros / masks.elements:.4f} of {masks.elements} elements instead of {p:g}"
    return ""


def repeated_masks(first: Trace, last: Trace) -> str:
    """Say how many masks of a later traced step equal one of an earlier; empty if none does."""
    again = len(set(first.masks.digests) & set(last.masks.digests))
    if not again:
        return ""
    return f"{again} of {last.masks.drawn} dropout masks of the step at the end equal masks of the one at the beginning"


def common_masks(trace: Trace, stream: int, gather: Callable[[str], list[str]]) -> str:
    """Say how many masks of a step two ranks have in common, place by place; empty if none has.

    `stream` numbers this rank's random stream; ranks of one stream must draw equal masks. All ranks must call it,
    because `gather` returns the texts of all ranks.
    """
    everyone = [json.loads(said) for said in gather(json.dumps([stream, trace.masks.digests]))]
    for one, other in combinations(range(len(everyone)), 2):
        (here, masks), (there, others) = everyone[one], everyone[other]
        again = sum(map(eq, masks, others))
        if again and here != there:
            return f"{again} of {len(masks)} dropout masks of rank {other} equal those of rank {one}"
    return ""


def unequal_again(trace: Trace) -> str:
    """Say how many masks of recomputed forwards match none of the forward's; empty if all match."""
    masks = trace.masks
    if not masks.unequal:
        return ""
    return f", but {masks.unequal} of {masks.again} recomputed dropout masks differ from the forward's"
