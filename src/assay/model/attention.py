"""Causal self-attention (arXiv:1706.03762): projections around an exchangeable core.

Implementations differ in the core. The hand-coded one writes the `[B, heads, T, T]` scores to memory; the other calls
torch's fused kernel. Queries, keys and values are computed by one matrix product, which is faster than three. Its rows
are grouped by key/value head, `[kv_heads, queries per group + 2, head_dim]`. A tensor-parallel rank can thus own whole
groups as consecutive rows.

Rotary positions (arXiv:2104.09864) rotate pairs of query and key channels by an angle that grows with position. Llama
3.1 learned short contexts first, and then slowed the rotations that had not come round in them. Rotations with a period
beyond that first context are slowed by the whole factor. Those that came round four times are kept, and between them
the change is linear in the number of turns. So short distances keep their angles, and a longer context brings few
angles that the model has not seen. Transformers calls this `rope_type` "llama3".
"""

import math
from contextlib import nullcontext
from functools import lru_cache
from typing import NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

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


class HandCodedAttention(nn.Module):
    """Softmax(q·kᵀ/√d)·v with a causal mask, and every intermediate result as a tensor."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.context_length = config.context_length
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`q [B, heads, T, d]`, `k` and `v [B, kv_heads, T, d]` → `[B, heads, T, d]`."""
        if k.size(1) != q.size(1):
            k, v = (x.repeat_interleave(q.size(1) // k.size(1), dim=1) for x in (k, v))
        q, k, v = (x.contiguous() for x in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(q.size(-1)))
        scores = scores.masked_fill(self.blocked(q), float("-inf"))
        return self.dropout(scores.softmax(dim=-1)) @ v

    def blocked(self, q: Tensor) -> Tensor:
        """Return the mask for queries `[B, heads, T, d]`: True for keys that they do not see."""
        length = q.size(-2)
        return future(self.context_length, q.device)[:length, :length]


class SdpaAttention(nn.Module):
    """Softmax(q·kᵀ/√d)·v by `scaled_dot_product_attention`, which need not write the scores to memory.

    Without a `backend`, torch chooses one by device, dtype and shape.
    """

    def __init__(self, config: ModelConfig, backend: SDPBackend | None = None) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.backend = backend

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """`q [B, heads, T, d]`, `k` and `v [B, kv_heads, T, d]` → `[B, heads, T, d]`."""
        if k.size(1) != q.size(1):
            k, v = (x.repeat_interleave(q.size(1) // k.size(1), dim=1) for x in (k, v))
        dropout = self.dropout if self.training else 0.0
        with nullcontext() if self.backend is None else sdpa_kernel(self.backend):
            return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)


@lru_cache(maxsize=4)
def future(length: int, device: torch.device) -> Tensor:
    """Return the causal mask `[length, length]`, True for keys after the query; one tensor serves all layers."""
    with torch.inference_mode(False):
        return torch.ones(length, length, dtype=torch.bool, device=device).triu(1)


class Attention(nn.Module):
    """Multi-head causal self-attention, `[B, T, n_embd] → [B, T, n_embd]`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.group = config.n_head // config.kv_heads
        rows = config.kv_heads * (self.group + 2) * config.head_dim
        self.qkv = nn.Linear(config.n_embd, rows, bias=config.has_qkv_bias)
        self.q_norm = nn.RMSNorm(config.head_dim, eps=config.norm_eps) if config.qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(config.head_dim, eps=config.norm_eps) if config.qk_norm else nn.Identity()
        self.rotary = Rotary.of(config) if config.position == "rotary" else None
        self.core: nn.Module = HandCodedAttention(config)
        self.projection = nn.Linear(config.heads_width, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)
        self.positions: Tensor | None = None
        """Positions `[T]` of the input tokens if other ranks have the rest of the sequence; None: 0, 1, …"""

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        q, k, v = self._heads(x)
        y = self.core(q, k, v).transpose(1, 2).reshape(rows * length, -1)
        return self.dropout(self.projection(y).view(rows, length, width))

    def _heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries `[B, heads, T, d]`, keys and values `[B, kv_heads, T, d]`, after QK norm and rotation."""
        rows, length, _ = x.shape
        # On a matrix, each linear layer is one product, without views before and after it in forward and backward.
        grouped = self.qkv(x.flatten(0, 1)).view(rows, length, -1, self.group + 2, self.config.head_dim)
        if self.group == 1:
            q, k, v = grouped.unbind(3)
        else:
            q, k, v = (heads.flatten(2, 3) for heads in grouped.split((self.group, 1, 1), dim=3))
        # Normalized while the heads of a token are contiguous, so that the merge after the core need not copy.
        if self.config.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        if self.rotary is not None:
            q, k = rotate(q, self.rotary, self.positions), rotate(k, self.rotary, self.positions)
        return q, k, v
