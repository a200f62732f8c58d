"""Rotary positions (arXiv:2104.09864): rotate pairs of query and key channels by an angle that grows with position.

Llama 3.1 learned short contexts first, and then slowed the rotations that had not come round in them. Rotations with a
period beyond that first context are slowed by the whole factor. Those that came round four times are kept, and between
them the change is linear in the number of turns. So short distances keep their angles, and a longer context brings few
angles that the model has not seen. Transformers calls this `rope_type` "llama3".
"""

import math
from functools import lru_cache
from typing import NamedTuple, Self

import torch
from torch import Tensor

from assay.config import ModelConfig

_TURNS_SLOWED, _TURNS_KEPT = 1.0, 4.0
"""Turns within the first context up to which a rotation is slowed wholly, and from which it is kept (Llama 3.1)."""


class Rotary(NamedTuple):
    """The rotations of a model's heads."""

    context_length: int
    base: float = 10_000.0
    factor: float = 1.0
    """Factor by which slow rotations are slowed; 1: not at all."""
    first_context: int = 8192
    """Context in which a rotation counts as slow or fast."""

    @classmethod
    def of(cls, config: ModelConfig) -> Self:
        """Return the rotations of a configuration."""
        return cls(config.context_length, config.rotary_base, config.rotary_factor, config.rotary_context)

    def frequencies(self, width: int, device: torch.device | None = None) -> Tensor:
        """Return radians per position for each pair of channels of a head, `[width / 2]`, float32."""
        frequency = self.base ** (-torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)
        if self.factor == 1.0:
            return frequency
        turns = self.first_context * frequency / (2 * math.pi)
        kept = ((turns - _TURNS_SLOWED) / (_TURNS_KEPT - _TURNS_SLOWED)).clamp(0.0, 1.0)
        return frequency * kept + frequency / self.factor * (1.0 - kept)


@lru_cache(maxsize=8)
def _tables(rotary: Rotary, width: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, each `[length, width]`, from float32 angles; cached, because all layers use them."""
    with torch.inference_mode(False):
        positions = torch.arange(rotary.context_length, device=device, dtype=torch.float32)
        angle = torch.outer(positions, rotary.frequencies(width, device))
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, rotary: Rotary, positions: Tensor | None = None) -> Tensor:
    """Rotate `x [B, heads, T, head_dim]`, T ≤ `context_length`, keeping its dtype.

    `positions [T]` are 0, 1, … by default.
    """
    cosine, sine = _tables(rotary, x.size(-1), x.device, x.dtype)
    at = slice(x.size(-2)) if positions is None else positions
    left, right = x.chunk(2, dim=-1)
    return x * cosine[at] + torch.cat((-right, left), dim=-1) * sine[at]
