"""Optimizer classes of this package: each tensor updated by itself, and several optimizers as one.

Groups and state indices of several follow each other in the order of the optimizers, as torch numbers those of a single
one.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from assay.step.program import OptimizerLike


class OneByOne(Optimizer):
    """An optimizer defined by its update of one tensor."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.update(parameter, parameter.grad, self.state[parameter], group)

    @abstractmethod
    def update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Update `parameter` in place. `state` belongs to this tensor and is empty before its first update."""


class Decaying(OneByOne):
    """An optimizer with decoupled decay, which it calls for each tensor with the direction of its step."""

    cautious = False
    """True if only elements decay that the step moves towards zero, or not at all (arXiv:2510.12402)."""

    def decay(self, parameter: Tensor, direction: Tensor, group: dict[str, Any]) -> None:
        """Shrink the weight by η·λ. `direction` has the sign of what the step subtracts."""
        amount = group["lr"] * group["weight_decay"]
        if not self.cautious:
            parameter.mul_(1 - amount)
        elif group["weight_decay"]:  # also at a rate of zero, so that every step is the same program
            # A product of a sign, unlike one of two small numbers, is never rounded to zero.
            aligned = direction.sign().to(parameter.dtype).mul_(parameter).ge_(0)
            parameter.mul_(aligned.mul_(-amount).add_(1))


class Joined:
    """Optimizer that steps each of its optimizers in turn."""

    def __init__(self, optimizers: Sequence[OptimizerLike]) -> None:
        self.optimizers = tuple(optimizers)
        self.param_groups: list[dict[str, Any]] = self._groups()

    @property
    def state(self) -> Mapping[Any, Any]:
        """State by parameter."""
        return {parameter: state for one in self.optimizers for parameter, state in one.state.items()}

    def step(self) -> None:
        """Update every parameter."""
        for one in self.optimizers:
            one.step()

    def state_dict(self) -> dict[str, Any]:
        """Return all groups, and state by a parameter's index over all groups."""
        joined: dict[str, Any] = {"state": {}, "param_groups": []}
        for first, one in self._numbered():
            own = one.state_dict()
            joined["state"] |= {first + index: state for index, state in own["state"].items()}
            joined["param_groups"] += [
                {**group, "params": [first + index for index in group["params"]]} for group in own["param_groups"]
            ]
        return joined

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load each optimizer's own part of the groups and the state."""
        groups = list(state["param_groups"])
        for first, one in self._numbered():
            count, own = _parameters(one), [groups.pop(0) for _ in one.param_groups]
            one.load_state_dict(
                {
                    "state": {n - first: kept for n, kept in state["state"].items() if first <= n < first + count},
                    "param_groups": [{**group, "params": [n - first for n in group["params"]]} for group in own],
                }
            )
        self.param_groups = self._groups()  # loading replaces torch's group objects

    def _groups(self) -> list[dict[str, Any]]:
        return [group for one in self.optimizers for group in one.param_groups]

    def _numbered(self) -> list[tuple[int, OptimizerLike]]:
        counts = [_parameters(one) for one in self.optimizers]
        return [(sum(counts[:index]), one) for index, one in enumerate(self.optimizers)]


def _parameters(optimizer: OptimizerLike) -> int:
    return sum(len(group["params"]) for group in optimizer.param_groups)
