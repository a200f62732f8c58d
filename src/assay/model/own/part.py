"""A model of the user's own, as the one part of a program: token ids and targets in, the summed loss out.

The user's function makes the module with its weights, from torch's generator, which is seeded with the run's seed.
These weights are then the initialization of a program, as any other. So the part is on the meta device until it is
built, and the reference program of a value check begins with equal weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily

from assay.config.model import ModelConfig
from assay.config.source import called
from assay.errors import UsageError

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""(model, token ids, targets), the latter two `[rows, T]` → mean loss over all targets."""


@dataclass(frozen=True)
class OwnModel:
    """A module of the user's own, with its loss.

    Without a loss, ``model(ids, targets)`` must return the mean loss, alone or as one of several results.
    """

    model: nn.Module
    loss: Loss | None = None


class OwnPart(nn.Module):
    """The whole model as a part of a program."""

    def __init__(self, own: OwnModel) -> None:
        super().__init__()
        self.model = own.model
        self._loss = own.loss or _mean_loss

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Return the loss summed over the targets, a scalar."""
        return self._loss(self.model, ids, targets).float() * targets.numel()


@dataclass(frozen=True)
class Loaded:
    """A user's model on the meta device, with the values that it had."""

    part: nn.Module
    weights: dict[str, Tensor]
    """Initial weights by parameter name; a tied one is listed under each of its names."""
    buffers: dict[str, Tensor]
    tied: tuple[tuple[str, str], ...]
    """(alias, owner) of parameters that are one."""


def load_own(config: ModelConfig, seed: int) -> Loaded:
    """Call the user's function and take its model apart. Raises `UsageError` if it fails, or returns no model."""
    assert config.own is not None
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = called(config.own, config.own_folder, config)
    own = OwnModel(made) if isinstance(made, nn.Module) else made
    if not isinstance(own, OwnModel):
        raise UsageError(f"{config.own} returned a {type(made).__name__}; return a torch module or an assay.OwnModel")
    part = OwnPart(own).train()
    if not any(True for _ in part.parameters()):
        raise UsageError(f"the model of {config.own} has no parameters to train")
    if frozen := [name for name, one in part.named_parameters() if not one.requires_grad]:
        raise UsageError(f"{frozen[0]} of {config.own} needs no gradient; a training is checked in all its weights")
    every = dict(part.named_parameters(remove_duplicate=False))
    owners = {id(one): name for name, one in part.named_parameters()}
    tied = tuple((name, owners[id(one)]) for name, one in every.items() if owners[id(one)] != name)
    weights = {name: one.detach() for name, one in every.items()}
    buffers = {name: one.detach() for name, one in part.named_buffers()}
    _empty(part)
    return Loaded(part, weights, buffers, tied)


def _empty(part: nn.Module) -> None:
    """Put a module on the meta device. Its new tensors are real ones, also while a trace makes fake ones."""
    with unset_fake_temporarily():
        for module in part.modules():
            for name, one in module.named_parameters(recurse=False):
                setattr(module, name, nn.Parameter(torch.empty(one.shape, dtype=one.dtype, device="meta")))
            for name, buffer in module.named_buffers(recurse=False):
                setattr(module, name, torch.empty(buffer.shape, dtype=buffer.dtype, device="meta"))


def _mean_loss(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
    returned: Any = model(ids, targets)
    several = returned if isinstance(returned, tuple | list) else (returned,)
    for one in several:
        if isinstance(one, Tensor) and one.numel() == 1:
            return one.reshape(())
    raise UsageError("model(ids, targets) returned no loss; return assay.OwnModel(model, loss) with a function of it")
