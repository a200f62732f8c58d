"""One kernel as data: what it computes, in which dtype, and how many FLOPs and bytes that takes."""

from typing import NamedTuple

PRODUCT, BATCHED = "linear", "bmm_qk"
"""Products of a layer, `shape` = (tokens, in, out), and of a batch, (batch, length, depth)."""
ALIGNED = 8
"""Multiple of numbers that products of 16 bits and TF32 need to be fast."""
PLAIN = "mul"
"""Kernel that reads and writes tensors in the order of their memory; those that are not in the table count as it."""
WIDENING, NARROWING = "cast bfloat16", "cast float32"
"""Casts from 16 bits to float32, which is slower, and back."""
MIXED_ADD = "add_profiled"
"""Sum of a float32 and a 16-bit tensor."""
EMBEDDED = "embedding"
"""Backward of an embedding."""
ATTENTION, NORM = "attention ", "layer_norm"
"""Fused attention, with its kernel's name behind it, `shape` = (batch, heads, length, depth); norms, (rows, width)."""
LISTED, FUSED = "adamw_foreach", "adamw_fused"
"""Kernels over a list of tensors, and the fused update of one."""


class Kernel(NamedTuple):
    """Work that the host launches at once."""

    kind: str
    """Name of its rows in the table of measured operators."""
    dtype: str
    """dtype in which it computes; `tf32` for products of float32 in that format."""
    nbytes: float
    """Bytes that it reads and writes."""
    flops: float = 0.0
    """FLOPs of products; a multiply-add counts two."""
    shape: tuple[int, ...] = ()
    """Shape by which products, attention and norms are found in the table."""
    back: bool = False
    """True in backward, where it was measured apart."""
