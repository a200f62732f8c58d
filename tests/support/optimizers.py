"""The update of one optimizer, run and measured alone: its state, its scratch and its kernels."""

import gc

import torch
from torch import nn

from assay.cost import Tensor
from assay.cost.update_rules import Pieces
from assay.instruments.memory.storages import distinct_bytes
from assay.instruments.memory.tensor_peak import TensorPeak, tensor_peak
from assay.instruments.operations import tensors_in
from assay.optimizers.recipes import OptimizerRecipe
from assay.step.program import OptimizerLike

SHAPES = {
    "embedding.token.weight": (700, 96),
    "blocks.0.attention.qkv.weight": (288, 96),
    "blocks.0.attention.qkv.bias": (288,),
    "blocks.0.mlp.up.weight": (384, 96),
    "blocks.0.mlp.down.weight": (96, 384),
    "blocks.0.mlp.down.bias": (96,),
    "head.norm.weight": (4096,),
}
"""Wide, tall and square enough that every kind of scratch shows."""

PIECES: Pieces = {name: Tensor(name, shape, batched=False) for name, shape in SHAPES.items()}


def made(recipe: OptimizerRecipe, seed: int = 0) -> tuple[OptimizerLike, list[tuple[str, nn.Parameter]]]:
    """An optimizer of parameters of those shapes."""
    torch.manual_seed(seed)
    named = [(name, nn.Parameter(torch.randn(shape))) for name, shape in SHAPES.items()]
    return recipe(named), named


def update(optimizer: OptimizerLike, named: list[tuple[str, nn.Parameter]], index: int) -> None:
    """One update on gradients that follow from `index`."""
    noise = torch.Generator().manual_seed(index)
    for _, parameter in named:
        parameter.grad = torch.randn(parameter.shape, generator=noise)
    optimizer.step()


def scratch(recipe: OptimizerRecipe) -> TensorPeak:
    """What the second update takes beside what is there before it."""
    optimizer, named = made(recipe)
    update(optimizer, named, 0)
    gc.collect()  # what earlier tests left dead would be given back inside
    return tensor_peak(lambda: optimizer.step() and None, "cpu")


def state_bytes(recipe: OptimizerRecipe) -> int:
    """What it keeps after an update."""
    optimizer, named = made(recipe)
    update(optimizer, named, 0)
    return distinct_bytes(tensors_in(list(optimizer.state.values())))


def after(recipe: OptimizerRecipe, updates: int = 5) -> dict[str, torch.Tensor]:
    """The weights after some updates."""
    optimizer, named = made(recipe)
    for index in range(updates):
        update(optimizer, named, index)
    return {name: parameter.detach() for name, parameter in named}
