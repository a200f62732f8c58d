"""Normalization layers: LayerNorm (arXiv:1607.06450) and RMSNorm (arXiv:1910.07467)."""

from torch import nn

from assay.config import ModelConfig


def build_norm(config: ModelConfig, width: int | None = None) -> nn.Module:
    """Build the configured normalization over the last dimension, of size `width`, by default `n_embd`."""
    width = width or config.n_embd
    if config.norm == "rms":
        return nn.RMSNorm(width, eps=config.norm_eps)
    return nn.LayerNorm(width, eps=config.norm_eps, bias=config.bias)
