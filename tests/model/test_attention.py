"""The attention module against a slow one that reads its own copy of the weights' layout."""

import cmath
import math

import torch
from hypothesis import given, settings
from torch import Tensor

from assay.config import ModelConfig
from assay.config.model import EPSILON
from assay.model import Attention, HandCodedAttention, SdpaAttention
from support.models import configurations, random_model, with_sdpa


def _normalized(x: Tensor, weight: Tensor) -> Tensor:
    return x / torch.sqrt((x * x).mean() + EPSILON) * weight


def _turned(x: Tensor, position: int, base: float) -> Tensor:
    """Channel pairs (i, i + d/2) as complex numbers, multiplied by e^(i·position·frequency)."""
    half = x.numel() // 2
    pairs = [complex(x[i], x[half + i]) for i in range(half)]
    turned = [z * cmath.exp(1j * position * base ** (-2 * i / x.numel())) for i, z in enumerate(pairs)]
    return torch.tensor([z.real for z in turned] + [z.imag for z in turned], dtype=x.dtype)


def slow_attention(attention: Attention, x: Tensor) -> Tensor:
    """One sequence `[T, n_embd]`, one head and one query at a time, straight from the definition."""
    config = attention.config
    d, group = config.head_dim, config.n_head // config.kv_heads

    def project(row: int, position: int, norm: torch.nn.Module | None) -> Tensor:
        rows = slice(row * d, (row + 1) * d)
        bias = attention.qkv.bias[rows] if config.has_qkv_bias else 0.0
        heads = attention.qkv.weight[rows] @ x[position] + bias
        if norm is not None and config.qk_norm:
            heads = _normalized(heads, norm.weight)
        if norm is not None and config.position == "rotary":
            heads = _turned(heads, position, config.rotary_base)
        return heads

    out = x.new_zeros(len(x), config.heads_width)
    for head in range(config.n_head):
        first = head // group * (group + 2)
        for query in range(len(x)):
            q = project(first + head % group, query, attention.q_norm)
            keys = [project(first + group, t, attention.k_norm) for t in range(query + 1)]
            values = [project(first + group + 1, t, None) for t in range(query + 1)]
            weights = [math.exp(float(q @ key) / math.sqrt(d)) for key in keys]
            mixed = sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)
            out[query, head * d : (head + 1) * d] = mixed
    bias = attention.projection.bias if config.bias else 0.0
    return out @ attention.projection.weight.T + bias


@settings(max_examples=30, deadline=None)
@given(configurations())
def test_attention_follows_its_definition(config: ModelConfig) -> None:
    x = torch.randn(2, config.context_length, config.n_embd, dtype=torch.float64)
    # rotary angles are float32 by design: a few 1e-7 of a turn at these lengths
    tolerance = 1e-5 if config.position == "rotary" else 1e-12
    for model in (random_model(config, dtype=torch.float64), with_sdpa(random_model(config, dtype=torch.float64))):
        attention = model.blocks[0].attention
        with torch.no_grad():
            expected = torch.stack([slow_attention(attention, row) for row in x])
            torch.testing.assert_close(attention(x), expected, rtol=tolerance, atol=tolerance)


def test_a_sequence_shorter_than_the_context_sees_what_a_whole_one_sees() -> None:
    config = ModelConfig(n_layer=1, n_head=2, n_embd=8, context_length=8, vocab_size=5, position="rotary")
    x = torch.randn(2, 8, 8, dtype=torch.float64)
    for model in (random_model(config, dtype=torch.float64), with_sdpa(random_model(config, dtype=torch.float64))):
        attention = model.blocks[0].attention
        torch.testing.assert_close(attention(x[:, :3]), attention(x)[:, :3], rtol=1e-12, atol=1e-12)


def test_the_hand_coded_core_works_after_inference_mode_made_its_mask() -> None:
    config = ModelConfig(n_head=2, n_embd=8, context_length=31, vocab_size=5)
    core = HandCodedAttention(config)
    q, k, v = (torch.randn(1, 2, 31, 4, requires_grad=True) for _ in range(3))
    with torch.inference_mode():
        core(q, k, v)
    core(q, k, v).sum().backward()
    assert q.grad is not None


def test_only_the_fused_core_avoids_the_scores() -> None:
    config = ModelConfig(n_head=2, n_embd=8, context_length=16, vocab_size=5)
    q, k, v = (torch.randn(1, 2, 16, 4, requires_grad=True) for _ in range(3))

    def saved(core: torch.nn.Module) -> int:
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
            core(q, k, v)
        return max(sizes)

    assert saved(HandCodedAttention(config)) >= 2 * 16 * 16
    assert saved(SdpaAttention(config)) < 2 * 16 * 16
