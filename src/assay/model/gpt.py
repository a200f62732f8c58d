"""A GPT decoder: embedding, blocks, head. The head takes the targets and returns the summed loss.

The loss is summed, because micro-batches and ranks of a step may have different sizes. The step divides once, by its
number of tokens. The loss is computed inside the head, because an implementation may never hold all logits at a time.
Parameter names are the contract of checkpoints: no optimization renames one.

Normalization is LayerNorm (arXiv:1607.06450) or RMSNorm (arXiv:1910.07467). The position-wise MLP of a block has GELU
as in GPT-2, a squared ReLU, or the gated SwiGLU (arXiv:2002.05202). For experts see `moe`.
"""

import hashlib
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.config import ModelConfig
from assay.config.model import EMBEDDING_WEIGHT, HEAD_WEIGHT
from assay.model.activation import build_activation
from assay.model.attention import Attention
from assay.model.balance import note_factor
from assay.model.loss import ChunkedCrossEntropy, VocabularyProjection, cross_entropy
from assay.model.moe import MixtureMLP


def build_norm(config: ModelConfig, width: int | None = None) -> nn.Module:
    """Build the configured normalization over the last dimension, of size `width`, by default `n_embd`."""
    width = width or config.n_embd
    if config.norm == "rms":
        return nn.RMSNorm(width, eps=config.norm_eps)
    return nn.LayerNorm(width, eps=config.norm_eps, bias=config.bias)


class MLP(nn.Module):
    """GPT-2's MLP, `[B, T, n_embd] → [B, T, n_embd]` through `hidden` units."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.n_embd, config.hidden, bias=config.bias)
        self.activation = build_activation(config)
        self.down = nn.Linear(config.hidden, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        y = self.down(self.activation(self.up(x.flatten(0, 1))))
        return self.dropout(y.view(x.shape))


class GatedMLP(nn.Module):
    """`down(silu(gate(x)) · up(x))`; with three matrices, two thirds of `hidden` give as many parameters as `MLP`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = nn.Linear(config.n_embd, config.hidden, bias=config.bias)
        self.up = nn.Linear(config.n_embd, config.hidden, bias=config.bias)
        self.down = nn.Linear(config.hidden, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        y = self.down(F.silu(self.gate(rows)) * self.up(rows))
        return self.dropout(y.view(x.shape))


def build_mlp(config: ModelConfig) -> nn.Module:
    """Build the configured MLP: dense, or a mixture if there are experts."""
    if config.n_expert is not None:
        return MixtureMLP(config)
    return GatedMLP(config) if config.activation == "swiglu" else MLP(config)


TIED = ((HEAD_WEIGHT, EMBEDDING_WEIGHT),)
"""(alias, owner) of the weights that are one parameter if embeddings are tied."""

Loss = Callable[[VocabularyProjection, Tensor, Tensor], Tensor]
"""(projection to the vocabulary, `x [n, n_embd]`, targets `[n]`) → the summed loss, a scalar."""


class Embedding(nn.Module):
    """Token ids `[B, T]` → `[B, T, n_embd]`, plus learned positions unless positions are rotary."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocabulary, config.n_embd)
        learned = config.position == "learned"
        self.position = nn.Embedding(config.context_length, config.n_embd) if learned else None
        self.dropout = nn.Dropout(config.dropout)
        self.positions: Tensor | None = None
        """Positions `[T]` of the input tokens if other ranks have the rest of the sequence; None: 0, 1, …"""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token(ids)
        if self.position is not None:
            x = x + self.position.weight[slice(ids.size(1)) if self.positions is None else self.positions]
        return self.dropout(x)


class Block(nn.Module):
    """Attention and MLP, each on a residual branch; norms before each branch (`pre`) or after its sum (`post`)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.post = config.norm_position == "post"
        self.attention_norm = build_norm(config)
        self.attention = Attention(config)
        self.mlp_norm = build_norm(config)
        self.mlp = build_mlp(config)

    def forward(self, x: Tensor) -> Tensor:
        if self.post:
            x = self.attention_norm(x + self.attention(x))
            return self.mlp_norm(x + self.mlp(x))
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Head(nn.Module):
    """The decoder's final norm (with pre-norm only), the projection to the vocabulary, and the loss."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = build_norm(config) if config.norm_position == "pre" else nn.Identity()
        self.projection = VocabularyProjection(config.n_embd, config.vocabulary, config.logit_softcap)
        self.cross_entropy: Loss = cross_entropy

    @property
    def region(self) -> nn.Module:
        """Return the part of the head to compile. A chunked loss stays eager, or all chunks would be alive at once."""
        return self.norm if isinstance(self.cross_entropy, ChunkedCrossEntropy) else self

    def logits(self, x: Tensor) -> Tensor:
        """Return logits: `[B, T, n_embd]` → `[B, T, vocab_size]`."""
        return self.projection(self.norm(x))

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy in nats, summed over all targets `[B, T]`: a scalar."""
        return self.cross_entropy(self.projection, self.norm(x).flatten(0, 1), targets.flatten())


class GPT(nn.Module):
    """The whole decoder: embedding, blocks and head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.head = Head(config)
        if config.tie_embeddings:
            tie(self, TIED)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Return the summed loss, a scalar, of token ids and targets, each `[B, T]`."""
        loss = self.head(self.hidden(ids), targets)
        return loss if self.config.n_expert is None else note_factor(loss)

    def logits(self, ids: Tensor) -> Tensor:
        """Return logits: token ids `[B, T]` → `[B, T, vocab_size]`."""
        return self.head.logits(self.hidden(ids))

    def hidden(self, ids: Tensor) -> Tensor:
        """Return the input of the head: token ids `[B, T]` → `[B, T, n_embd]`."""
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return x


def tie(module: nn.Module, pairs: tuple[tuple[str, str], ...]) -> None:
    """Make each alias the same parameter object as its owner."""
    for alias, owner in pairs:
        parent, _, name = alias.rpartition(".")
        setattr(module.get_submodule(parent), name, module.get_parameter(owner))


def initializer(config: ModelConfig, seed: int) -> Callable[[str, torch.Size], Tensor]:
    """Return GPT-2's initialization as a pure function of (seed, parameter name), equal under every sharding.

    Embeddings and matrices, including experts' stacked ones, are normal with standard deviation `init_std`. Matrices
    that write to the residual stream are scaled by 1/√(2·n_layer) (Radford et al. 2019). Biases are 0 and norms 1.
    """

    def initialize(name: str, shape: torch.Size) -> Tensor:
        if name.endswith(".bias"):
            return torch.zeros(shape)
        if len(shape) == 1:
            return torch.ones(shape)
        residual = name.endswith(("attention.projection.weight", "mlp.down.weight", "mlp.experts.down"))
        std = config.init_std / math.sqrt(2 * config.n_layer) if residual else config.init_std
        digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
        return torch.empty(shape).normal_(0.0, std, generator=generator)

    return initialize
