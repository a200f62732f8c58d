"""Frozen matrices in 4 bits a number: NF4 of QLoRA (arXiv:2305.14314), with one float32 scale a block of 64 numbers.

A block's largest absolute number m has the level ±1 exactly, so what is unpacked packs to the same bytes. A block whose
m is subnormal is kept as zeros, because some processors take such numbers for zero.

The paper rounds the scales to 8 bits as well (double quantization, 0.37 bits a number less). Then packing again would
change them, so a checkpoint would need the packed form.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from assay.cost.rewrites.four_bits import BLOCK, BLOCKS_AT_ONCE, LARGEST_BYTES, LEVELS, PACKED_BYTES


@dataclass(frozen=True)
class Packing:
    """The packed form of a matrix of a shape: uint8, `[blocks, 36]`, the scale's bytes before the codes'."""

    shape: torch.Size
    """Shape of the matrix, which has a multiple of 64 numbers."""

    @property
    def packed_shape(self) -> tuple[int, int]:
        """Number of blocks, and bytes of each."""
        return self.shape.numel() // BLOCK, PACKED_BYTES

    @torch.no_grad()
    def pack(self, values: Tensor) -> Tensor:
        """Return the nearest packed matrix: codes of the levels nearest to each number over its block's largest."""
        packed = torch.empty(self.packed_shape, dtype=torch.uint8, device=values.device)
        blocks = values.float().reshape(-1, BLOCK)
        for ours, theirs in _some_at_once(packed, blocks):
            _pack_into(ours, theirs)
        return packed

    def unpack(self, packed: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the matrix; numbers are float32, and then rounded to `dtype`."""
        values = torch.empty(self.shape, dtype=dtype, device=packed.device)
        for ours, theirs in _some_at_once(values.view(-1, BLOCK), packed):
            _unpack_into(ours, theirs)
        return values


def _some_at_once(ours: Tensor, theirs: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(*(torch.split(one, BLOCKS_AT_ONCE) for one in (ours, theirs)), strict=True)


def _pack_into(packed: Tensor, blocks: Tensor) -> None:
    levels = torch.tensor(LEVELS, dtype=torch.float64, device=blocks.device)
    largest = blocks.abs().amax(1, keepdim=True)
    largest = largest.masked_fill(largest < torch.finfo(torch.float32).tiny, 0.0)
    scaled = blocks / largest.masked_fill(largest == 0, 1.0)
    codes = torch.bucketize(scaled.double(), (levels[1:] + levels[:-1]) / 2)
    packed.view(torch.float32)[:, :1] = largest
    packed[:, LARGEST_BYTES:] = codes[:, ::2] * len(LEVELS) + codes[:, 1::2]


def _unpack_into(blocks: Tensor, packed: Tensor) -> None:
    indices = packed[:, LARGEST_BYTES:].to(torch.int32).flatten()
    levels = _pairs(packed.device).index_select(0, indices).view(torch.float32).view(-1, BLOCK)
    del indices
    blocks.copy_(levels.mul_(packed.view(torch.float32)[:, :1]))


@lru_cache(maxsize=4)
def _pairs(device: torch.device) -> Tensor:
    """Return the levels of each byte's two codes, as the bits of one number: a lookup then copies both at once."""
    levels = torch.tensor(LEVELS, device=device)
    pairs = torch.stack([levels.repeat_interleave(len(LEVELS)), levels.repeat(len(LEVELS))], 1)
    return pairs.view(torch.int64).flatten()


def packed_linear(x: Tensor, packed: Tensor, bias: Tensor | None, packing: Packing) -> Tensor:
    """Return x·Wᵀ + b of a packed matrix, in autocast's dtype if that is on; x is `[…, in]`."""
    device, dtype = x.device.type, x.dtype
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    # Nothing but the call holds the matrix and the casts, which are made in this order.
    return UnpackedProduct.apply(  # type: ignore[no-untyped-call]
        packing.unpack(packed, dtype), packed, packing, x.to(dtype), None if bias is None else bias.to(dtype)
    )


class UnpackedProduct(torch.autograd.Function):
    """A product that saves its packed matrix only, and unpacks that again in backward."""

    @staticmethod
    def forward(ctx: Any, whole: Tensor, packed: Tensor, packing: Packing, x: Tensor, bias: Tensor | None) -> Tensor:
        ctx.packing = packing
        ctx.save_for_backward(packed)
        rows = x.flatten(0, -2)
        out = torch.mm(rows, whole.t()) if bias is None else torch.addmm(bias, rows, whole.t())
        return out.view(*x.shape[:-1], len(whole))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None, Tensor, None]:
        """Return the input's gradient; matrix and bias are frozen."""
        (packed,) = ctx.saved_tensors
        return None, None, None, gradient @ ctx.packing.unpack(packed, gradient.dtype), None
