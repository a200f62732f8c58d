"""A family of Hugging Face models: the names and layouts of its tensors beside ours, and the models it can express.

A tensor of ours is one of theirs or several, such as their queries, keys and values.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from assay.config import ModelConfig
from assay.model.gpt import TIED
from assay.model.weights import parameter_shapes

OUTPUT = "lm_head.weight"
"""Name of the output projection, which has no prefix in any family."""


class Place(NamedTuple):
    """Name of one tensor in assay, its names in the family, and its conversion in both directions."""

    ours: str
    theirs: tuple[str, ...]
    read: Callable[[Sequence[Tensor]], Tensor]
    write: Callable[[Tensor], Sequence[Tensor]]


class Where(NamedTuple):
    """The parts of a parameter's name in assay."""

    block: str
    """Number of its block; empty outside of blocks."""
    inner: str
    """Module within the block, or within the model."""
    kind: str
    """`weight` or `bias`."""


def where(ours: str) -> Where:
    """Return the parts of a parameter's name in assay, such as ``blocks.3.mlp.up.weight``."""
    module, _, kind = ours.rpartition(".")
    if module.startswith("blocks."):
        _, index, inner = module.split(".", 2)
        return Where(index, inner, kind)
    return Where("", module, kind)


@dataclass(frozen=True)
class Family:
    """One kind of Hugging Face model: its names, and the models that it can express."""

    title: str
    prefix: str
    """Prefix of all tensors but the output projection; a checkpoint without it is read, too."""
    place: Callable[[str, ModelConfig], Place]
    """Place of a parameter that is not the output projection."""
    check: Callable[[ModelConfig], None]
    """Raises `UsageError` for a model that the family cannot express."""
    unused: tuple[str, ...] = ()
    """Endings of tensors that old versions wrote and that are not weights."""
    pads_biases: bool = False
    """True if the family always has biases: those that our model lacks are zero."""
    cut: tuple[str, ...] = ()
    """Tensors of which a shorter context takes the first rows."""

    def places(self, config: ModelConfig) -> Iterator[tuple[Place, tuple[torch.Size, ...]]]:
        """Yield every tensor that the family has under this configuration, with its shapes there."""
        whole = config.model_copy(update={"bias": True, "qkv_bias": None}) if self.pads_biases else config
        for ours, shape in parameter_shapes(whole).items():
            place = Place(ours, (OUTPUT,), _one, _alone) if ours == TIED[0][0] else self.place(ours, config)
            yield place, tuple(one.shape for one in place.write(torch.empty(shape, device="meta")))


def _one(tensors: Sequence[Tensor]) -> Tensor:
    (tensor,) = tensors
    return tensor


def _alone(tensor: Tensor) -> Sequence[Tensor]:
    return (tensor,)


def unchanged(ours: str, theirs: str) -> Place:
    """Return the place of a tensor that is the same in both."""
    return Place(ours, (theirs,), _one, _alone)
