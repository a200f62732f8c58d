"""Slow reference of low-rank adapters: the merged weight V = W + s·B·A, and what its gradient says of A and B.

The baseline program runs with V in the place of W. By the chain rule ∂A = s·Bᵀ·∂V and ∂B = s·∂V·Aᵀ, and frozen weights
have no gradient. This file imports no torch.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from assay.config.base import Frozen
from assay.config.model import ModelConfig
from assay.cost.rewrites.low_rank import A, B, adapters, is_adapter

if TYPE_CHECKING:
    from torch import Tensor


class Adapters(Frozen):
    """Adapters beside some layers of a model whose own weights are frozen."""

    layers: tuple[str, ...]
    rank: int
    scale: float

    def trains(self, name: str) -> bool:
        """True for an adapter's matrix; every other weight must stay as it is."""
        return is_adapter(name)

    def shapes(self, model: ModelConfig) -> dict[str, tuple[int, ...]]:
        """Shapes of all adapters' matrices by name."""
        return {name: one.shape for name, one in adapters(model, self.layers, self.rank).items()}

    def merged(self, weights: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
        """Return the weights of the plain model that computes the same, with the merged ones in float64."""
        found = {name: weights[name] for name in weights if not is_adapter(name)}
        for layer in self.layers:
            low = weights[f"{layer}.{B}"].double() @ weights[f"{layer}.{A}"].double()
            found[f"{layer}.weight"] = weights[f"{layer}.weight"].double() + self.scale * low
        return found

    def gradients(self, merged: "Mapping[str, Tensor]", weights: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
        """Return the adapters' gradients, from those of the merged weights."""
        found: dict[str, Tensor] = {}
        for layer in self.layers:
            by_weight = merged[f"{layer}.weight"]
            down, up = (weights[f"{layer}.{matrix}"].to(by_weight) for matrix in (A, B))
            found[f"{layer}.{A}"] = self.scale * (up.t() @ by_weight)
            found[f"{layer}.{B}"] = self.scale * (by_weight @ down.t())
        return found
