"""The nonlinearity between the two matrices of an MLP, or of each expert."""

import torch.nn.functional as F
from torch import Tensor, nn

from assay.config import ModelConfig


class SquaredReluModule(nn.Module):
    """`max(0, x)²` (arXiv:2109.08668). A product, and no power, which autocast would widen on a GPU."""

    def forward(self, x: Tensor) -> Tensor:
        positive = F.relu(x)
        return positive * positive


def build_activation(config: ModelConfig) -> nn.Module:
    """Build the configured nonlinearity; of a gated MLP it is that of the gate."""
    if config.activation == "swiglu":
        return nn.SiLU()
    if config.activation == "squared_relu":
        return SquaredReluModule()
    return nn.GELU("tanh" if config.activation == "gelu_tanh" else "none")
