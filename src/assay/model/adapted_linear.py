"""Low-rank adapters beside frozen linear layers (arXiv:2106.09685): y = W·x + b + B·(s·A·x), with s = alpha / rank.

`A` begins as torch begins a linear layer, uniform within ±1/√in (He et al. 2015, with a gain for a slope of √5), as in
the authors' code. `B` begins as zeros, so that the first step computes the model that was given.
"""

import hashlib
import math
from collections.abc import Callable, Collection

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.cost.rewrites.low_rank import B, is_adapter
from assay.model.nf4 import Packing, packed_linear

Initialize = Callable[[str, torch.Size], Tensor]


class AdaptedLinear(nn.Linear):
    """A linear layer with an adapter, whose own weight and bias keep their names."""

    def __init__(self, layer: nn.Linear, rank: int, scale: float) -> None:
        super().__init__(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
        self.weight, self.bias, self.scale = layer.weight, layer.bias, scale
        self.lora_A = nn.Parameter(layer.weight.new_empty(rank, layer.in_features))
        self.lora_B = nn.Parameter(layer.weight.new_empty(layer.out_features, rank))
        self.packing: Packing | None = None
        """Form in which the weight is kept; None: as its numbers."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's result and the adapter's."""
        plain = self._plain(x)
        return plain + F.linear(F.linear(x, self.lora_A) * self.scale, self.lora_B)

    def _plain(self, x: Tensor) -> Tensor:
        if self.packing is None:
            return F.linear(x, self.weight, self.bias)
        return packed_linear(x, self.weight, self.bias, self.packing)


def adapt(part: nn.Module, layers: Collection[str], rank: int, scale: float) -> None:
    """Put adapters beside some layers of a part, before it is built, and freeze everything else."""
    for parameter in part.parameters():
        parameter.requires_grad_(False)
    for name, layer in list(part.named_modules()):
        if name in layers and isinstance(layer, nn.Linear):
            parent, _, own = name.rpartition(".")
            setattr(part.get_submodule(parent), own, AdaptedLinear(layer, rank, scale))


def pack_frozen(part: nn.Module) -> dict[str, Packing]:
    """Let adapted layers of a part keep their matrices in 4 bits a number, before it is built; return how, by name."""
    packings: dict[str, Packing] = {}
    for name, layer in part.named_modules():
        if isinstance(layer, AdaptedLinear):
            layer.packing = packings[f"{name}.weight"] = Packing(layer.weight.shape)
            empty = layer.weight.new_empty(layer.packing.packed_shape, dtype=torch.uint8)
            layer.weight = nn.Parameter(empty, requires_grad=False)
    return packings


def begin_adapters(initialize: Initialize, seed: int) -> Initialize:
    """Return an initialization that draws adapters by their names, and takes everything else from `initialize`."""
    return lambda name, shape: initial_adapter(name, shape, seed) if is_adapter(name) else initialize(name, shape)


def initial_adapter(name: str, shape: torch.Size, seed: int) -> Tensor:
    """Return the first value of an adapter's matrix, a pure function of seed and name."""
    if name.endswith(B):
        return torch.zeros(shape)
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    bound = 1 / math.sqrt(shape[1])
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)
