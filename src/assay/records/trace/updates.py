"""Optimizer part of a trace: its parameter groups, and the writes to and the state of every parameter.

A parameter has its name in the whole model. Writes are counted in elements, by the operator that made them. A kernel
over a list of tensors counts for each of them, and an update of half the weights has half the elements.
"""

from collections.abc import Mapping

from assay.config.base import Frozen

Setting = float | tuple[float, ...]


class Group(Frozen):
    """One parameter group of the optimizer, with its settings in the update."""

    parameters: tuple[str, ...]
    settings: Mapping[str, Setting]
    """Learning rate, weight decay, betas and other numbers, under torch's names."""


class Updated(Frozen):
    """One parameter that the optimizer of this rank updates."""

    name: str
    elements: int
    """Number of elements that this rank's optimizer updates."""
    written: Mapping[str, int] = {}
    """Number of elements of the parameter written during the update, by operator; compiled code shows no operators."""
    changes: int = 0
    """Number of times that an operator or a compiled kernel changed the tensor in place, by torch's version counter."""
    state: Mapping[str, int] = {}
    """Bytes of this rank's optimizer state, by key."""
    steps: float | None = None
    """Number of updates that the state has counted; None if it has no count."""
