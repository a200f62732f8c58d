"""Inference by roofline: bytes of weights and cache, and the time to read a prompt and to add a token.

A token of each sequence takes every weight that is read once, and the cached keys and values of its own sequence. So
reading memory limits small batches, and products limit large ones. The time is the larger of the two at the device's
peaks, and a real program takes longer. An embedding that is not the output's too is looked up, so hardly any of it is
read. In a mixture a token is sent to k of E experts. With balanced routers a share (1 − k/E)^s of them is missed by all
of s tokens, and not read. Reading a prompt is limited by products unless it is short, and needs the logits of its last
token alone. Weights of 8 and 4 bits are read as such, and multiplied in 16 bits. Those of 32 bits are multiplied at the
peak of TF32, if the device has it. The cache has 16 bits.
"""

import math
from typing import Literal

from assay.config import ModelConfig
from assay.config.base import Frozen
from assay.cost.flop_conventions import inner_parameters
from assay.cost.gpt_tape import active_parameter_count, parameter_count
from assay.estimator.device_memory import CONTEXT
from assay.hardware.devices import Device

BITS = (32, 16, 8, 4)
"""Sizes of a weight."""
CACHE_BYTES = 2
"""Bytes of a number in the cache."""


class Decoding(Frozen):
    """Some sequences on one device, each with as many tokens in the cache."""

    sequences: int
    tokens: int
    """Tokens of each sequence in the cache."""
    memory_bytes: int
    """Weights and cache; a program has some working storage besides."""
    fits: bool
    """True if both are in the device's memory beside CUDA's context."""
    prefill_seconds: float
    """Seconds to read prompts of so many tokens."""
    decode_seconds: float
    """Seconds to add one token to every sequence."""
    limit: Literal["memory", "products"]
    """The limit of adding a token."""

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second that are added to all sequences together."""
        return self.sequences / self.decode_seconds


class Inference(Frozen):
    """A model on one device, with weights of some size."""

    model: ModelConfig
    device: Device
    bits: int

    @property
    def flops(self) -> float:
        """Peak FLOP/s of products with these weights."""
        wide = [self.device.flops[one] for one in ("tf32", "float32") if self.bits == 32 and one in self.device.flops]
        return wide[0] if wide else self.device.half_flops

    @property
    def weights_bytes(self) -> int:
        """Bytes of all weights."""
        return weights_bytes(self.model, self.bits)

    def compute_bound_sequences(self, tokens: int = 0) -> float | None:
        """Sequences of so many tokens from which products limit a token; None if reading their caches always does.

        Below, all of them together take as long as the weights and caches take to be read. Each sequence adds products
        and a cache. If its cache takes longer, more sequences do not help.
        """
        products = _flops(self.model, tokens) / self.flops
        spare = products - tokens * cache_bytes_per_token(self.model) / self.device.bandwidth_bytes
        if spare <= 0:
            return None
        # Fewer sequences read fewer experts, so the limit comes down from that of all experts.
        limit, before = self._read_bytes(math.inf) / self.device.bandwidth_bytes / spare, math.inf
        while limit < before:
            limit, before = self._read_bytes(limit) / self.device.bandwidth_bytes / spare, limit
        return limit

    @property
    def compute_bound_tokens(self) -> float:
        """Tokens of a sequence from which no number of sequences makes products the limit."""
        attention = _flops(self.model, 1) - _flops(self.model, 0)
        each = cache_bytes_per_token(self.model) / self.device.bandwidth_bytes - attention / self.flops
        return _flops(self.model, 0) / self.flops / each if each > 0 else math.inf

    @property
    def outgrown_tokens(self) -> float:
        """Tokens, in all sequences together, from which the cache is larger than the weights."""
        return self.weights_bytes / cache_bytes_per_token(self.model)

    def at(self, sequences: int, tokens: int) -> Decoding:
        """Return memory and times for some sequences with so many tokens each."""
        cache = sequences * tokens * cache_bytes_per_token(self.model)
        moved = (self._read_bytes(sequences) + cache) / self.device.bandwidth_bytes
        read = (self._read_bytes(sequences * max(1, tokens)) + cache) / self.device.bandwidth_bytes
        computed = sequences * _flops(self.model, tokens) / self.flops
        unread = (tokens - 1) * 2 * self.model.vocabulary * self.model.n_embd  # logits of all tokens but the last one
        prompt = sequences * (tokens * _flops(self.model, (tokens + 1) / 2) - unread) / self.flops
        context = 0 if self.device.capability is None else CONTEXT.high
        return Decoding(
            sequences=sequences,
            tokens=tokens,
            memory_bytes=self.weights_bytes + cache,
            fits=self.weights_bytes + cache + context <= self.device.memory_bytes,
            prefill_seconds=max(prompt, read),
            decode_seconds=max(moved, computed),
            limit="memory" if moved >= computed else "products",
        )

    def _read_bytes(self, tokens: float) -> float:
        """Return the bytes of weights that some tokens read at once, in the mean over which experts they choose."""
        model, every = self.model, parameter_count(self.model)
        missed = every - active_parameter_count(model)
        if model.n_expert is not None and missed:
            every -= missed * (1 - model.n_expert_active / model.n_expert) ** max(0.0, tokens - 1)
        looked_up = 0 if model.tie_embeddings else model.vocabulary * model.n_embd
        return (every - looked_up) * self.bits / 8


def weights_bytes(model: ModelConfig, bits: int) -> int:
    """Return the bytes of all parameters, of `bits` bits each. Scales of quantized weights are not counted."""
    return -(-parameter_count(model) * bits // 8)


def cache_bytes_per_token(model: ModelConfig) -> int:
    """Return the bytes of a token's keys and values in all layers, at 16 bits: 2·2·n_layer·kv_heads·head_dim."""
    return 2 * CACHE_BYTES * model.n_layer * model.kv_heads * model.head_dim


def _flops(model: ModelConfig, tokens: float) -> float:
    """Return the FLOPs of one token that attends to `tokens` tokens: two for each weight of a product, and attention.

    The embedding is looked up, and the output is a product.
    """
    products = inner_parameters(model) + model.vocabulary * model.n_embd
    return 2 * products + 4 * model.n_layer * model.n_head * model.head_dim * tokens
