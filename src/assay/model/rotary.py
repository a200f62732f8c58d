"""Rotary positions (arXiv:2104.09864): rotate pairs of query and key channels by an angle that grows with position."""

from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=8)
def _tables(length: int, width: int, base: float, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, each `[length, width]`, from float32 angles; cached, because all layers use them."""
    with torch.inference_mode(False):
        frequency = base ** (-torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)
        angle = torch.outer(torch.arange(length, device=device, dtype=torch.float32), frequency)
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, context_length: int, base: float, positions: Tensor | None = None) -> Tensor:
    """Rotate `x [B, heads, T, head_dim]`, T ≤ `context_length`, keeping its dtype.

    `positions [T]` are 0, 1, … by default.
    """
    cosine, sine = _tables(context_length, x.size(-1), base, x.device, x.dtype)
    at = slice(x.size(-2)) if positions is None else positions
    left, right = x.chunk(2, dim=-1)
    return x * cosine[at] + torch.cat((-right, left), dim=-1) * sine[at]
