"""Update each parameter as soon as its gradient is complete, while backward still runs.

The pattern is that of torch's tutorial on fusing the optimizer's step into backward. Each parameter has an optimizer,
and a hook that autograd calls when its gradient is accumulated. By then every node that needs the parameter has run, so
the update may write to it. A step reports the norm of all gradients. It is computed from the norms of single gradients,
in the order of the plain update.

torch keeps a parameter's hooks in C++, where the garbage collector cannot see what they refer to. A hook that referred
to the optimizers would therefore keep all parameters and states alive for ever, so it refers to them weakly.
"""

import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from assay.step.program import NamedParameters, OptimizerLike, Program, Step


class OptimizerPerParameter:
    """Many optimizers of one parameter each, presented as one. Its `step` has nothing left to do."""

    def __init__(self, optimizers: Mapping[Tensor, OptimizerLike]) -> None:
        self._optimizers = optimizers
        self.norms: dict[Tensor, Tensor] = {}
        """Norms of the gradients since the last call of `norm`, on the device."""
        hook = _weak_hook(weakref.ref(self))
        for parameter in optimizers:
            parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Read anew at each access, because torch creates new groups when it loads a state."""
        return [group for one in self._optimizers.values() for group in one.param_groups]

    @property
    def state(self) -> Mapping[Any, Any]:
        return {key: value for one in self._optimizers.values() for key, value in one.state.items()}

    def step(self) -> None:
        """Do nothing: every parameter was updated in backward."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with parameters numbered in the order of the groups, as torch does in one optimizer."""
        states = [one.state_dict() for one in self._optimizers.values()]
        return {
            "state": {index: entries for index, one in enumerate(states) for entries in one["state"].values()},
            "param_groups": [group for one in states for group in one["param_groups"]],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for index, one in enumerate(self._optimizers.values()):
            entries = {0: state["state"][index]} if index in state["state"] else {}
            one.load_state_dict({**one.state_dict(), "state": entries})

    def norm(self) -> Tensor:
        """Return the Euclidean norm of all gradients since the last call."""
        norms = [self.norms[parameter] for parameter in self._optimizers if parameter in self.norms]
        self.norms.clear()
        total: Tensor = torch.linalg.vector_norm(torch.stack(norms))
        return total

    def update(self, parameter: Tensor) -> None:
        """Update one parameter by its gradient, and free the gradient."""
        gradient = parameter.grad
        if gradient is None:
            raise RuntimeError("the hook of an accumulated gradient was called without a gradient")
        widest = torch.promote_types(gradient.dtype, torch.float32)
        self.norms[parameter] = torch.linalg.vector_norm(gradient, dtype=widest)
        self._optimizers[parameter].step()
        parameter.grad = None


def _weak_hook(optimizers: weakref.ref[OptimizerPerParameter]) -> Callable[[Tensor], None]:
    """Return a hook that updates a parameter as long as its optimizer is alive."""

    def hook(parameter: Tensor) -> None:
        alive = optimizers()
        if alive is not None:
            alive.update(parameter)

    return hook


def update_in_backward(program: Program) -> Program:
    """Return the program whose optimizer, whichever it is, updates each parameter by itself during backward."""
    recipe = program.optimizer

    def one_each(parameters: NamedParameters) -> OptimizerLike:
        return OptimizerPerParameter({one: recipe([(name, one)]) for name, one in parameters})

    return replace(program, optimizer=one_each, update=_norm_of_what_was_done)


def _norm_of_what_was_done(step: Step) -> Tensor:
    if not isinstance(step.optimizer, OptimizerPerParameter):
        raise TypeError("another optimization replaced the optimizer that updates in backward")
    return step.optimizer.norm()
