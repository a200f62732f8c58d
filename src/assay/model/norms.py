"""Normalizations: LayerNorm (arXiv:1607.06450) and RMSNorm (arXiv:1910.07467), one place that knows which."""

from torch import nn

from assay.config import ModelConfig
from assay.config.model import EPSILON


def build_norm(config: ModelConfig, width: int | None = None) -> nn.Module:
    """The configured normalization over the last dimension, `n_embd` wide unless `width` says otherwise."""
    width = width or config.n_embd
    if config.norm == "rms":
        return nn.RMSNorm(width, eps=EPSILON)
    return nn.LayerNorm(width, eps=EPSILON, bias=config.bias)
