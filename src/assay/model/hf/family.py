"""A family of Hugging Face models: the layouts of its tensors beside ours, and the models it can express.

A tensor of ours is one of theirs or several, such as their queries, keys and values.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from assay.config import ModelConfig
from assay.config.hf.tensors import Naming
from assay.model.gpt import TIED
from assay.model.weights import parameter_shapes


class TensorNames(NamedTuple):
    """Name of one tensor in assay, its names in the family, and its conversion in both directions."""

    ours: str
    theirs: tuple[str, ...]
    read: Callable[[Sequence[Tensor]], Tensor]
    write: Callable[[Tensor], Sequence[Tensor]]


@dataclass(frozen=True)
class Family:
    """One kind of Hugging Face model: its names, and the models that it can express."""

    naming: Naming
    place: Callable[[str, tuple[str, ...], ModelConfig], TensorNames]
    """Place of a parameter that is not the output projection, by its name and its names in the family."""
    check: Callable[[ModelConfig], None]
    """Raises `UsageError` for a model that the family cannot express."""

    def places(self, config: ModelConfig) -> Iterator[tuple[TensorNames, tuple[torch.Size, ...]]]:
        """Yield every tensor that the family has under this configuration, with its shapes there."""
        padded = self.naming.pads_biases
        whole = config.model_copy(update={"bias": True, "qkv_bias": None}) if padded else config
        for ours, shape in parameter_shapes(whole).items():
            names = self.naming.names(ours)
            place = unchanged(ours, names) if ours == TIED[0][0] else self.place(ours, names, config)
            yield place, tuple(one.shape for one in place.write(torch.empty(shape, device="meta")))


def _one(tensors: Sequence[Tensor]) -> Tensor:
    (tensor,) = tensors
    return tensor


def _alone(tensor: Tensor) -> Sequence[Tensor]:
    return (tensor,)


def unchanged(ours: str, theirs: tuple[str, ...]) -> TensorNames:
    """Return the place of a tensor that is the same in both."""
    return TensorNames(ours, theirs, _one, _alone)
