"""The attention module against a slow one that reads its own copy of the weights' layout."""

import cmath
import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from assay.config import ModelConfig
from assay.config.model import EPSILON
from assay.model import Attention, HandCodedAttention, SdpaAttention
from assay.model.attention import Rotary, rotate
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


def _at(x: torch.Tensor, position: int, base: float = 10_000.0) -> torch.Tensor:
    """`x [d]` turned as if it stood at `position` of a sequence of 64."""
    row = torch.zeros(1, 1, 64, x.numel(), dtype=x.dtype)
    row[0, 0, position] = x
    return rotate(row, Rotary(64, base))[0, 0, position]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 31), st.integers(0, 31), st.integers(0, 32), st.sampled_from([2, 4, 10, 16]), st.integers(0, 99))
def test_a_product_of_query_and_key_depends_on_their_distance_alone(
    query: int, key: int, shift: int, width: int, seed: int
) -> None:
    q, k = torch.randn(2, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    here = _at(q, query) @ _at(k, key)
    there = _at(q, query + shift) @ _at(k, key + shift)
    torch.testing.assert_close(here, there, rtol=1e-5, atol=1e-5)


@given(st.integers(0, 63), st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_turning_keeps_lengths_and_leaves_the_first_position(position: int, seed: int) -> None:
    x = torch.randn(8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(_at(x, position).norm(), x.norm(), rtol=1e-6, atol=0)
    assert torch.equal(_at(x, 0), x)


def test_other_distances_and_bases_turn_otherwise() -> None:
    q, k = torch.randn(2, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert abs(float(_at(q, 5) @ _at(k, 3) - _at(q, 6) @ _at(k, 3))) > 1e-3
    assert not torch.allclose(_at(q, 5), _at(q, 5, base=100.0))


def test_the_dtype_stays_and_tables_made_in_inference_mode_carry_gradients() -> None:
    x = torch.randn(1, 2, 7, 6)
    with torch.inference_mode():
        assert rotate(x.bfloat16(), Rotary(7, 77.0)).dtype == torch.bfloat16
        rotate(x, Rotary(7, 77.0))
    x.requires_grad_()
    rotate(x, Rotary(7, 77.0)).sum().backward()
    assert x.grad is not None
