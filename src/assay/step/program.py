"""The seams of a training step: what an optimization may exchange, and nothing else.

A `Program` only describes. Optimizations fold over it, each returning a changed copy; then `training.build` makes it
real, once: materialise the parts, initialise them by name, tie, build the optimizer. The cut follows what turned out
to hold on one, two and four ranks: forward and backward of a whole step are one seam (`gradients`), because a pipeline
schedule replaces both; the loss scale is a value, not a wrapper; the optimizer is a recipe, because it must be built
from the live parameters; a context around each part's forward differs from one around forward and backward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from assay.step.compiled import Captures
from assay.step.graphs import StepGraphs
from assay.step.kept import Keeper
from assay.step.offload import Offload

MicroBatch = tuple[Tensor, Tensor]
"""Token ids and targets, each `[rows, T]`, int64."""

Share = tuple[int, int]
"""(index, count) of one who has every count-th row of a batch, from the index-th on."""

BatchSource = Callable[[int, Share], Sequence[MicroBatch]]

Context = Callable[[], AbstractContextManager[Any]]
NamedParameters = Sequence[tuple[str, nn.Parameter]]


class OptimizerLike(Protocol):
    """The part of `torch.optim.Optimizer` that a step uses."""

    @property
    def param_groups(self) -> list[dict[str, Any]]: ...
    @property
    def state(self) -> Mapping[Any, Any]: ...
    def step(self) -> Any: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Stateful(Protocol):
    """Something beside weights and optimizer that a checkpoint must carry."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class LossScale:
    """The factor between the loss and what is differentiated. This one is 1; fp16's lives with its optimization."""

    value: float = 1.0
    """The factor of the next step."""

    @property
    def skips(self) -> bool:
        """Whether it may leave an update out: one that has a `skip` of its own."""
        return type(self).skip is not LossScale.skip

    def scale(self, loss: Tensor) -> Tensor:
        """Return what to call `backward` on."""
        return loss

    def unscale(self, step: Step) -> None:
        """Divide the gradients by the factor, before they are measured and clipped."""

    def skip(self, step: Step, norm: Tensor) -> bool:
        """Whether this update must be left out because a gradient is not finite; `norm` is the global one."""
        return False


@dataclass(frozen=True)
class Program:
    """A training step, described. Functions take the built `Step`, so that they see live parameters."""

    device: torch.device
    parts: tuple[nn.Module, ...]
    """The modules that this rank owns, on the meta device until they are built; the last returns the summed loss. What
    an attribute of theirs holds (the head's `cross_entropy`, attention's `core`) is exchanged there."""
    initialize: Callable[[str, torch.Size], Tensor]
    """A parameter's first value from its name and full shape: pure, so that every sharding starts equal."""
    tied: tuple[tuple[str, str], ...]
    """(alias, owner) parameter names, tied again after the parts are materialised."""
    optimizer: Callable[[NamedParameters], OptimizerLike]
    gradients: Callable[[Step, Sequence[MicroBatch], int], Tensor]
    """(step, micro-batches, tokens in the global batch) → this rank's summed loss; leaves gradients behind."""
    gradient_norm: Callable[[Step], Tensor]
    update: Callable[[Step], Tensor]
    """Unscale, measure, clip, step, clear; returns the global gradient norm before clipping."""
    schedule: Callable[[int], float]
    """Learning rate of a step, set before the step's gradients."""
    batches: BatchSource
    """(step index, share) → this rank's rows as one micro-batch, in the host's memory or on the device already: the
    step moves them there, and `micro_batches` cuts them. Pure, so that any step can be asked for again."""
    encode: Callable[[str], Iterable[Any]]
    """Text → arrays of token ids, by the tokenizer of the run's corpus."""
    evaluate: Callable[[Step, Iterable[MicroBatch]], tuple[float, int]]
    """(step, batches) → (summed loss, number of targets), without gradients and without dropout."""
    reduce_loss: Callable[[Tensor], Tensor]
    """This rank's loss → the global one."""
    synchronize: Callable[[Step, bool], AbstractContextManager[Any]]
    """(step, is this the last micro-batch) → the context in which its backward runs."""
    optimized: Callable[[NamedParameters], NamedParameters] = tuple
    """(parameters) → what the optimizer updates of each on this rank, under the same names: all, or a piece's view."""
    rows_at_rest: Mapping[str, int] = field(default_factory=dict)
    """Of weights with rows that are always zero: how many come first that are not. A checkpoint has only those."""
    rest: torch.device | None = None
    """Where weights, gradients and optimizer state lie between uses; None: on `device`."""
    mesh: DeviceMesh | None = None
    share: Share = (0, 1)
    """Of this rank among those that split the batch."""
    prepared: Counter[str] = field(default_factory=Counter)
    """Sequences that were not simply read from prepared tokens, by who or what made them: for a trace to read."""
    makers: dict[str, int] = field(default_factory=dict)
    """How many they are who made the last batch ready, by who or what: as one of them counted."""
    micro_batches: int = 1
    sequence_parts: int = 1
    """Of the residual stream, norms and dropout, one on each rank of tp; 1: every rank of tp has them whole."""
    loss_scale: LossScale = field(default_factory=LossScale)
    forward_contexts: tuple[Context, ...] = ()
    """Entered inside each part's forward (autocast)."""
    step_contexts: tuple[Context, ...] = ()
    """Entered around forward and backward together."""
    finish_gradients: tuple[Callable[[Step], None], ...] = ()
    """Run between the last backward and the update (a tied weight's all-reduce under a pipeline)."""
    stateful: Mapping[str, Stateful] = field(default_factory=dict)
    read: Callable[[Tensor], list[list[float]]] = Tensor.tolist
    """(figures, a row for each step) → the same on the host, which waits for them."""
    read_every: int = 1
    """Steps whose figures are read together; 1: within each step, and its norm before its update."""
    kept: tuple[Keeper, ...] = ()
    """What else stays for backward than autograd's saved tensors."""
    offload: Offload | None = None
    """Which counts what autograd keeps on the host; None: nothing."""
    captures: Captures | None = None
    """The graphs of compiled forwards, which a trace reads; None: nothing is compiled."""
    graphs: StepGraphs | None = None
    """What `gradients` replays; None: the host launches every kernel."""

    def axis(self, name: str) -> DeviceMesh:
        """The one-dimensional mesh of this rank's group along an axis. Raises `RuntimeError` on one device."""
        if self.mesh is None:
            raise RuntimeError(f"there is no axis {name!r}: the program was made for one device")
        return self.mesh[name]


@dataclass(frozen=True)
class Step:
    """A program made real: materialised parts and the optimizer over their parameters."""

    program: Program
    optimizer: OptimizerLike
    optimized: NamedParameters
    """What the optimizer updates, by the names of the parameters that it is, or is a piece of."""

    @property
    def parts(self) -> tuple[nn.Module, ...]:
        """The live modules, in the order in which data flows through them."""
        return self.program.parts

    def named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Every distinct parameter of this rank, by its name in the whole model; a tied one under its owner's."""
        return self._named_parameters

    @cached_property
    def _named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Walked once: a built step's parameters stay the same objects, and every update asks for them."""
        return [item for part in self.parts for item in part.named_parameters()]

    def modules_of(self, kind: type[nn.Module]) -> list[nn.Module]:
        """Every module of one class, in the order of the forward pass."""
        return [module for part in self.parts for module in part.modules() if isinstance(module, kind)]
