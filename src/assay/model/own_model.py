"""A model of the user's own, as the one part of a program: inputs and targets in, the summed loss out.

A loss of several targets is their sum, and the number of those that it counted. A user may return both. One number is
the mean over all targets, except integers below zero: these are labels that losses of torch leave out, such as −100.

The user's function makes the module with its weights, from torch's generator, which is seeded with the run's seed.
These weights are then the initialization of a program, as any other. So the part is on the meta device until it is
built, and the reference program of a value check begins with equal weights.

Floating inputs are cast to the format of the weights: 16 bits where a technique made them so, 64 in the ground truth of
a value check. Floating targets are widened to it and never narrowed. Losses of torch compute in the wider of two
formats, but some have no gradient of both before torch 2.13. Integers stay as they are.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.nn.functional import multi_head_attention_forward, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from assay.config.extensions import call_function
from assay.config.run import ResolvedRun
from assay.errors import Untrainable, UsageError
from assay.model.loss import Count, TargetTally
from assay.model.own_batches import MakeBatches, MakeValidation, OwnBatches

_MASKS, _MASK_PLACE = ("attn_mask", "key_padding_mask"), 3
"""Names of attention's masks in calls of torch, and the place of the mask among arguments without names."""

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor | tuple[Tensor, Count]]
"""(model, inputs, targets) → mean loss over all targets, or the summed loss and the number of targets that it counted.
Without batches of the user's own, these are token ids and the tokens that follow, each `[rows, T]`."""


@dataclass(frozen=True)
class OwnModel:
    """A module of the user's own, with its loss and its batches.

    ``loss(model, inputs, targets)`` returns the mean loss over all targets, or a pair ``(sum, count)``. The pair is the
    summed loss and the number of targets that it counted. Without a loss, ``model(inputs, targets)`` must return the
    mean loss, alone or as one of several results. Without batches, a run trains on the tokens of its corpus.

    ``batches(step, seed, rows)`` returns the (inputs, targets) of an optimizer step: two tensors on the CPU, each with
    `rows` rows first. Equal arguments must give equal batches. Torch's generator is seeded with the seed and the step
    around each call. The number of targets of a row is the same in all steps.

    ``validation(rows)`` returns an iterable of such pairs, all of which every evaluation reads; it must end, and be the
    same at every call. Its batches may have any number of rows. Without it a run has no validation loss.

    `blocks` are modules of the model that techniques may treat alike, in the order of their calls. They need not be
    named where the model has them in a `ModuleList` or a `Sequential` of one class.
    """

    model: nn.Module
    loss: Loss | None = None
    batches: MakeBatches | None = None
    validation: MakeValidation | None = None
    blocks: Sequence[nn.Module] = ()


class OwnPart(nn.Module):
    """The whole model as a part of a program. `batches` are the user's own; None: those of the corpus.

    `tally` has the number of targets that the last forward's loss counted.
    """

    def __init__(self, own: OwnModel, batches: OwnBatches | None = None) -> None:
        super().__init__()
        self.model = own.model
        self.batches = batches
        self.blocks = tuple(own.blocks)  # a tuple registers no module a second time
        self.tally = TargetTally()
        self._loss = own.loss or _mean_loss

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss summed over the targets that it counts, a scalar."""
        weights = next(self.model.parameters()).dtype
        if inputs.is_floating_point():
            inputs = inputs.to(weights)
        if targets.is_floating_point():
            targets = targets.to(torch.promote_types(targets.dtype, weights))
        with _MasksLikeQueries() if weights is torch.float64 else nullcontext():
            returned = self._loss(self.model, inputs, targets)
        if isinstance(returned, tuple | list) and len(returned) == 2:
            loss, self.tally.last = _wide(_number(returned[0])), _count(returned[1], targets.device)
            return loss
        self.tally.last = _labelled(targets)
        return _wide(_number(returned)) * self.tally.last


class _MasksLikeQueries(TorchFunctionMode):
    """Context in which a float mask of attention has the dtype of the queries.

    With queries in float64 and a mask in float32, torch's attention is wrong on a CPU (torch 2.13: by 2.6).
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named: dict[str, Any] = kwargs or {}
        if func in (scaled_dot_product_attention, multi_head_attention_forward):
            query = args[0] if args else named["query"]
            named = {name: _in_dtype_of(query, one) if name in _MASKS else one for name, one in named.items()}
            if func is scaled_dot_product_attention and len(args) > _MASK_PLACE:
                args = (*args[:_MASK_PLACE], _in_dtype_of(query, args[_MASK_PLACE]), *args[_MASK_PLACE + 1 :])
        return func(*args, **named)


def _in_dtype_of(query: Tensor, mask: Tensor | None) -> Tensor | None:
    return mask if mask is None or not mask.is_floating_point() else mask.to(query.dtype)


@dataclass(frozen=True)
class Loaded:
    """A user's model on the meta device, with the values that it had."""

    part: nn.Module
    weights: dict[str, Tensor]
    """Initial weights by parameter name; a tied one is listed under each of its names."""
    buffers: dict[str, Tensor]
    tied: tuple[tuple[str, str], ...]
    """(alias, owner) of parameters that are one."""


def load_own(run: ResolvedRun) -> Loaded:
    """Call the user's function and take its model apart. Raises `UsageError` if it fails, or returns no model."""
    config = run.model
    own = _made(run)
    part = OwnPart(own, _batches(run, own)).train()
    if not any(True for _ in part.parameters()):
        raise UsageError(f"the model of {config.own} has no parameters to train")
    if frozen := [name for name, one in part.named_parameters() if not one.requires_grad]:
        raise UsageError(
            f"{frozen[0].removeprefix('model.')} of {config.own} needs no gradient, and a run trains and checks all "
            "weights; assay measure takes a training step of yours that freezes some"
        )
    _check_gradients(part, str(config.own))
    every = dict(part.named_parameters(remove_duplicate=False))
    owners = {id(one): name for name, one in part.named_parameters()}
    tied = tuple((name, owners[id(one)]) for name, one in every.items() if owners[id(one)] != name)
    weights = {name: one.detach() for name, one in every.items()}
    buffers = {name: one.detach() for name, one in part.named_buffers()}
    _empty(part)
    return Loaded(part, weights, buffers, tied)


def _check_gradients(part: nn.Module, own: str) -> None:
    """Raise `UsageError` for parameters whose gradients a run cannot clip or compare: complex and sparse ones."""
    named = ((name.removeprefix("model."), one.is_complex()) for name, one in part.named_parameters())
    if found := [name for name, is_complex in named if is_complex]:
        raise UsageError(f"{found[0]} of {own} is complex; keep its real and imaginary parts as two parameters")
    modules = ((name.removeprefix("model."), getattr(one, "sparse", False)) for name, one in part.named_modules())
    if found := [name for name, is_sparse in modules if is_sparse is True]:
        raise UsageError(f"{found[0]} of {own} has sparse gradients; make it with sparse=False")


class Buffers:
    """Buffers of a user's model, which a forward may change, as a part of every checkpoint."""

    def __init__(self, part: nn.Module) -> None:
        self._part = part

    def state_dict(self) -> dict[str, Tensor]:
        """Return every buffer by its name."""
        return {name: one.detach() for name, one in self._part.named_buffers()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copy values into the buffers; those of which a checkpoint has none keep theirs."""
        with torch.no_grad():
            for name, one in self._part.named_buffers():
                if name in state:
                    one.copy_(state[name])


def own_batches(run: ResolvedRun) -> OwnBatches | None:
    """Call the user's function for its batches alone; None if it gives none. Raises as `load_own`."""
    return _batches(run, _made(run))


def batches_of(parts: Iterable[nn.Module]) -> OwnBatches | None:
    """Return the user's batches of a program with these parts; None: it has those of its corpus."""
    return next((part.batches for part in parts if isinstance(part, OwnPart)), None)


def tally_of(parts: Iterable[nn.Module]) -> TargetTally | None:
    """Return the count of targets of a user's own loss in a program with these parts."""
    return next((part.tally for part in parts if isinstance(part, OwnPart)), None)


def _made(run: ResolvedRun) -> OwnModel:
    config = run.model
    assert config.own is not None
    # An absent GPU that a trace stands in for has no generator.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices):
        torch.manual_seed(run.seed)
        made = call_function(config.own, config.own_folder, config)
    own = OwnModel(made) if isinstance(made, nn.Module) else made
    if not isinstance(own, OwnModel):
        step = "; a training step is for assay measure" if callable(made) else ""
        raise UsageError(
            f"{config.own} returned a {type(made).__name__}; return a torch module or an assay.OwnModel{step}"
        )
    if not isinstance(own.model, nn.Module):
        raise UsageError(f"the model of {config.own} is a {type(own.model).__name__}, no torch module")
    for name, given in (("loss", own.loss), ("batches", own.batches), ("validation", own.validation)):
        if given is not None and not callable(given):
            raise UsageError(f"{name} of {config.own} is a {type(given).__name__}; give a function")
    _check_blocks(own, config.own)
    return own


def _check_blocks(own: OwnModel, name: str) -> None:
    inside = set(own.model.modules())
    if not isinstance(own.blocks, Sequence | nn.ModuleList | nn.Sequential):
        raise UsageError(f"blocks of {name} is a {type(own.blocks).__name__}; give a list of modules of the model")
    for block in own.blocks:
        if block not in inside:
            raise UsageError(f"blocks of {name} has a {type(block).__name__} that is no module of its model")


def _batches(run: ResolvedRun, own: OwnModel) -> OwnBatches | None:
    if own.batches is None and own.validation is not None:
        raise UsageError(f"the model of {run.model.own} has validation and no batches; give both, or leave it out")
    return None if own.batches is None else OwnBatches(str(run.model.own), own.batches, own.validation, run)


def _empty(part: nn.Module) -> None:
    """Put a module on the meta device. Its new tensors are real ones, also while a trace makes fake ones."""
    with unset_fake_temporarily():
        for module in part.modules():
            for name, one in module.named_parameters(recurse=False):
                setattr(module, name, nn.Parameter(torch.empty(one.shape, dtype=one.dtype, device="meta")))
            for name, buffer in module.named_buffers(recurse=False):
                setattr(module, name, torch.empty(buffer.shape, dtype=buffer.dtype, device="meta"))


def _number(loss: Any) -> Tensor:
    """Return a user's loss. Raises `Untrainable` if it is no floating tensor of one element."""
    if isinstance(loss, Tensor) and loss.numel() == 1 and loss.is_floating_point():
        return loss
    kind = type(loss).__name__
    if isinstance(loss, Tensor):
        kind = f"Tensor of {str(loss.dtype).removeprefix('torch.')}, shape {list(loss.shape)}"
    raise Untrainable(
        f"the loss of your assay.OwnModel is a {kind}; return the mean over all targets, "
        "a floating tensor of one element, or a pair of the summed loss and the number of targets that it counted"
    )


def _wide(loss: Tensor) -> Tensor:
    return loss.to(torch.promote_types(loss.dtype, torch.float32))


def _count(given: Any, device: torch.device) -> Count:
    """Return the number of targets of a user's (sum, count). Raises `Untrainable` if it is no number."""
    if isinstance(given, Tensor) and given.numel() == 1 and given.dtype is not torch.bool and not given.is_complex():
        return given.detach().reshape(()).to(device)
    if isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given) and given >= 0:
        return given
    raise Untrainable(
        f"the loss of your assay.OwnModel counted {given!r:.60} targets; return (sum, count) with a number of them"
    )


def _labelled(targets: Tensor) -> Count:
    """Return the number of targets without integers below zero; if all are below zero, they are no such labels."""
    if targets.is_floating_point() or targets.is_complex() or not targets.dtype.is_signed:
        return targets.numel()
    counted = (targets >= 0).sum()
    return torch.where(counted > 0, counted, targets.numel())


def _mean_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    if (found := number_among(model(inputs, targets))) is not None:
        return found
    raise Untrainable(
        "model(inputs, targets) returned no loss; return assay.OwnModel(model, loss) with a function of it"
    )


def number_among(returned: Any) -> Tensor | None:
    """Return the first tensor of one element among a model's results, as a scalar; None if there is none."""
    every = returned.values() if isinstance(returned, Mapping) else returned
    for one in every if isinstance(returned, Mapping | tuple | list) else (returned,):
        if isinstance(one, Tensor) and one.numel() == 1:
            return one.reshape(())
    return None
