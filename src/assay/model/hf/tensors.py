"""Conversion between a family's tensors and assay's: the same numbers under other names and in other orders.

All conversions are permutations, joins and paddings, so gradients are converted like weights. The model's parts decide
its family: Llama's, or else GPT-2's, which refuses what it lacks.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from assay.config import ModelConfig
from assay.config.hf.llama import alike
from assay.config.hf.tensors import OUTPUT
from assay.errors import UsageError
from assay.model.gpt import TIED
from assay.model.hf.family import Family
from assay.model.hf.gpt2 import GPT2
from assay.model.hf.llama import LLAMA
from assay.model.weights import checked, parameter_shapes


def from_hf(tensors: Mapping[str, Tensor], config: ModelConfig, source: object) -> dict[str, Tensor]:
    """Convert tensors by the family's names, with or without its prefix, to assay's, float32.

    Raises `UsageError` if the family cannot express `config`, or if a tensor is missing, of another shape, or unknown.
    """
    family = _family(config)
    family.check(config)
    left = {name.removeprefix(family.naming.prefix): tensor for name, tensor in tensors.items()}
    shapes = parameter_shapes(config)
    state: dict[str, Tensor] = {}
    for place, wanted in family.places(config):
        if place.ours not in shapes:
            for name in place.theirs:
                if (extra := left.pop(name, None)) is not None and extra.any():
                    raise UsageError(f"{source} has a bias {name!r} that is not zero; set model.bias=true")
            continue
        found = [_taken(family, left, *one, config, source) for one in zip(place.theirs, wanted, strict=True)]
        state[place.ours] = place.read(found).to(torch.float32).contiguous()
    _nothing_left(family, left, state, source)
    return state


def to_hf(state: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """Convert weights or gradients by assay's names to the family's, with zeros for biases that `config` lacks.

    Raises `UsageError` if the family cannot express `config` or `state` does not fit it.
    """
    family = _family(config)
    family.check(config)
    weights = checked(state, config, "the model")
    tensors, dtype = {}, next(iter(weights.values())).dtype
    for place, shapes in family.places(config):
        padding = (torch.zeros(shape, dtype=dtype) for shape in shapes)
        written = place.write(weights[place.ours]) if place.ours in weights else padding
        for name, tensor in zip(place.theirs, written, strict=True):
            tensors[name if name == OUTPUT else family.naming.prefix + name] = tensor
    return tensors


def _family(config: ModelConfig) -> Family:
    return LLAMA if alike(config) else GPT2


def _taken(
    family: Family, left: dict[str, Tensor], name: str, wanted: torch.Size, config: ModelConfig, source: object
) -> Tensor:
    """Remove a tensor from those that are left. Raises `UsageError` if it is missing or of another shape."""
    found = left.pop(name, None)
    if found is None:
        raise UsageError(f"{source} has no tensor {name!r}; the {family.naming.title} checkpoint is not complete")
    if name in family.naming.cut:
        found = found[: config.context_length]
    if found.shape != wanted:
        shapes_differ = f"of shape {list(found.shape)}, and the configuration needs {list(wanted)}"
        raise UsageError(f"{source} has {name!r} {shapes_differ}; use the checkpoint's own configuration")
    return found


def _nothing_left(family: Family, left: Mapping[str, Tensor], state: Mapping[str, Tensor], source: object) -> None:
    """Raise `UsageError` for a tensor that was not used, except unused ones and a copy of the tied weight."""
    for name, tensor in left.items():
        if name.endswith(family.naming.unused):
            continue
        if name != OUTPUT:
            raise UsageError(
                f"{source} has a tensor {name!r} that the configuration lacks; use the checkpoint's own configuration"
            )
        if not torch.equal(tensor.to(torch.float32), state[TIED[0][1]]):
            raise UsageError(f"{source} has a separate output projection; set model.tie_embeddings=false")
