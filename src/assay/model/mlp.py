"""The position-wise MLP of a block: GELU as in GPT-2, or the gated SwiGLU (arXiv:2002.05202). For experts see `moe`."""

import torch.nn.functional as F
from torch import Tensor, nn

from assay.config import ModelConfig
from assay.model.moe import MixtureMLP


class MLP(nn.Module):
    """GPT-2's MLP, `[B, T, n_embd] → [B, T, n_embd]` through `hidden` units."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = nn.Linear(config.n_embd, config.hidden, bias=config.bias)
        self.activation = nn.GELU(approximate="tanh" if config.activation == "gelu_tanh" else "none")
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
