"""An optimizer's part of a trace: its groups, and for every parameter what it wrote and what state it keeps.

A parameter is known by its name in the whole model. Writes are counted in elements, by the operator that made them: a
kernel over a list of tensors counts for each tensor of the list: an update of half the weights has half the elements.
"""

from collections.abc import Mapping

from assay.config.base import Frozen

Setting = float | tuple[float, ...]


class Group(Frozen):
    """One parameter group of the optimizer, as it was in the update."""

    parameters: tuple[str, ...]
    settings: Mapping[str, Setting]
    """Learning rate, weight decay, betas and other numbers, under torch's names."""


class Updated(Frozen):
    """One parameter as the optimizer of this rank knows it."""

    name: str
    elements: int
    """Elements that this rank's optimizer updates."""
    written: Mapping[str, int] = {}
    """Elements of the parameter that were written during the update, by operator."""
    state: Mapping[str, int] = {}
    """Bytes of this rank's state, by its key."""
    steps: float | None = None
    """Updates that the state has counted; None where it counts none."""
