"""Slow reference of low-rank adapters: the merged weight V = W + s·B·A, and what its gradient says of A and B.

The baseline program runs with V in the place of W. By the chain rule ∂A = s·Bᵀ·∂V and ∂B = s·∂V·Aᵀ, and frozen weights
have no gradient. If W is kept in 4 bits a number, V is that of the unpacked numbers. These are computed here number by
number, in another way than the program's. This file imports no torch.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from assay.config.base import Frozen
from assay.config.model import ModelConfig
from assay.cost.operation import Tensor as Matrix
from assay.cost.rewrites.four_bits import BLOCK, LARGEST_BYTES, LEVELS, packed_form
from assay.cost.rewrites.low_rank import A, B, adapters, base_weights, is_adapter

if TYPE_CHECKING:
    from torch import Tensor

_ROWS = 4096
"""Blocks whose distances from all levels are computed at once."""
_LEAST = 2.0**-126
"""Smallest number that is not subnormal."""


class Adapters(Frozen):
    """Adapters beside some layers of a model whose own weights are frozen."""

    layers: tuple[str, ...]
    rank: int
    scale: float
    packs: bool = False
    """True if the adapted weights are kept in 4 bits a number."""

    def trains(self, name: str) -> bool:
        """True for an adapter's matrix; every other weight must stay as it is."""
        return is_adapter(name)

    def shapes(self, model: ModelConfig) -> dict[str, tuple[int, ...]]:
        """Shapes of all adapters' matrices by name."""
        return {name: one.shape for name, one in adapters(model, self.layers, self.rank).items()}

    def rounded(self, name: str, weight: "Tensor") -> "Tensor":
        """Return a frozen weight as the program keeps its numbers, in float32 if it packs them."""
        return _nearest(weight) if self.packs and name.removesuffix(".weight") in self.layers else weight

    def unpacked(self, weights: "Mapping[str, Tensor]", model: ModelConfig) -> "Mapping[str, Tensor]":
        """Return the numbers of all weights, of which some are packed."""
        if not self.packs:
            return weights
        whole = base_weights(model, self.layers)
        return {name: _numbers(one, whole[name]) if name in whole else one for name, one in weights.items()}

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


def _nearest(weight: "Tensor") -> "Tensor":
    """Return each number's nearest level times the largest number of its block, in float32."""
    found = weight.detach().float().clone().reshape(-1, BLOCK)
    levels = found.new_tensor(LEVELS)
    for start in range(0, len(found), _ROWS):
        blocks = found[start : start + _ROWS]
        largest = blocks.abs().amax(1, keepdim=True)
        largest = largest * (largest >= _LEAST)
        scaled = blocks / (largest + (largest == 0))
        nearest = (scaled.double().unsqueeze(-1) - levels.double()).abs().argmin(-1)
        blocks.copy_(levels[nearest] * largest)
    return found.reshape(weight.shape)


def _numbers(kept: "Tensor", whole: Matrix) -> "Tensor":
    """Return the float32 numbers of packed blocks; a weight that is not packed so stays, and is then a wrong one.

    A block has its largest number, and the first of a byte's two codes is in its high bits.
    """
    if kept.shape != packed_form(whole).shape:
        return kept
    largest, octets = kept[:, :LARGEST_BYTES], kept[:, LARGEST_BYTES:].long()
    scales = largest.contiguous().view(dtype=largest.float().dtype)
    codes = octets.new_empty(len(octets), BLOCK)
    codes[:, ::2], codes[:, 1::2] = octets // len(LEVELS), octets % len(LEVELS)
    return (scales.new_tensor(LEVELS)[codes] * scales).reshape(whole.shape)
