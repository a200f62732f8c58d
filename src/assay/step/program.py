"""The seams of a training step: the parts of it that an optimization may replace.

A `Program` only describes. Optimizations fold over it, each returning a changed copy. Then `training.build` makes it
real, once: materialise the parts, initialise them by name, tie, build the optimizer.

The choice of seams follows experience on one, two and four ranks. Forward and backward of a whole step are one seam
(`gradients`), because a pipeline schedule replaces both. The loss scale is a value, not a wrapper. The optimizer is a
recipe, because it must be built from the live parameters. A context around each part's forward differs from one around
forward and backward together.

The functions of a step are fields of `Program` itself. The rest is in groups: `Weights`, `Precision`, `Parallel` and
`Figures`. No field serves one technique alone. If its proof needs more than a trace sees by itself, a technique adds an
object to `witnesses`. An instrument asks for it by its class.

Settings of torch hold for the whole process: a technique may change one within a step, and puts it back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from assay.model.loss import TargetTally
from assay.model.nf4 import Packing


def settings() -> Mapping[str, object]:
    """Return the present value of each setting by its name."""
    cuda: Any = torch.backends.cuda
    return {
        "precision of float32 products": torch.get_float32_matmul_precision(),
        "TF32 in cuDNN": torch.backends.cudnn.allow_tf32,
        "sums of products in bfloat16": cuda.matmul.allow_bf16_reduced_precision_reduction,
        "sums of products in float16": cuda.matmul.allow_fp16_reduced_precision_reduction,
        "default dtype": torch.get_default_dtype(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "gradients": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"),
        "flash attention": cuda.flash_sdp_enabled(),
        "memory-efficient attention": cuda.mem_efficient_sdp_enabled(),
        "cuDNN's attention": cuda.cudnn_sdp_enabled(),
        "unfused attention": cuda.math_sdp_enabled(),
    }


MicroBatch = tuple[Tensor, Tensor]
"""Token ids and targets, each `[rows, T]`, int64; of a user's own batches, inputs and targets with rows first."""

Share = tuple[int, int]
"""(index, count): every count-th row of a batch, beginning with the index-th."""

BatchSource = Callable[[int, Share], Sequence[MicroBatch]]

Context = Callable[[], AbstractContextManager[Any]]
NamedParameters = Sequence[tuple[str, nn.Parameter]]

Witness = TypeVar("Witness")


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
    """State in addition to weights and optimizer that a checkpoint must contain."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class LossScale:
    """Factor by which the loss is multiplied before backward: 1 here; fp16's is defined with its optimization."""

    value: float = 1.0
    """Factor of the next step."""

    @property
    def skips(self) -> bool:
        """True if it may skip an update, because its class overrides `skip`."""
        return type(self).skip is not LossScale.skip

    def scale(self, loss: Tensor) -> Tensor:
        """Return the scaled loss, on which `backward` is called."""
        return loss

    def unscale(self, step: Step) -> None:
        """Divide the gradients by the factor, before their norm is computed and clipped."""

    def skip(self, step: Step, norm: Tensor) -> bool:
        """True if this update must be skipped, because a gradient is not finite; `norm` is the global gradient norm."""
        return False


@dataclass(frozen=True)
class Weights:
    """Initial values of the parameters, and their form and place between steps."""

    initialize: Callable[[str, torch.Size], Tensor]
    """(name, full shape) → a parameter's initial value. It is pure, so that every sharding starts with equal values."""
    tied: tuple[tuple[str, str], ...]
    """(alias, owner) parameter names, tied again after the parts are materialised."""
    frozen: frozenset[str] = frozenset()
    """Names of the parameters that are not trained, and have no gradient."""
    packed: Mapping[str, Packing] = field(default_factory=dict)
    """Frozen weights that are kept in fewer bits, by name. A checkpoint has their numbers."""
    rows_at_rest: Mapping[str, int] = field(default_factory=dict)
    """Number of rows before the always-zero rows of a weight, by its name. A checkpoint has only these rows."""
    buffers: Mapping[str, Tensor] = field(default_factory=dict)
    """Values of buffers by name; the GPT has none."""
    rest: torch.device | None = None
    """Device that stores weights, gradients and optimizer state between uses; None: the program's."""

    def first(self, name: str, parameter: Tensor) -> Tensor:
        """Return the initial value of a parameter, as the program keeps it; a tied weight has its owner's."""
        owner, packing = dict(self.tied).get(name, name), self.packed.get(name)
        if packing is None:
            return self.initialize(owner, parameter.shape)
        return packing.pack(self.initialize(owner, packing.shape))


@dataclass(frozen=True)
class Precision:
    """Formats in which the forward computes, and the scale that keeps gradients within a format's range."""

    forward_contexts: tuple[Context, ...] = ()
    """Entered inside each part's forward (autocast)."""
    loss_scale: LossScale = field(default_factory=LossScale)


@dataclass(frozen=True)
class Parallel:
    """This rank's place among all ranks, its share of their work, and the sums that it makes with them."""

    reduce_loss: Callable[[Tensor], Tensor]
    """This rank's loss → the global one."""
    synchronize: Callable[[Step, bool], AbstractContextManager[Any]]
    """(step, True for the last micro-batch) → the context in which its backward runs."""
    mesh: DeviceMesh | None = None
    share: Share = (0, 1)
    """Share of this rank among the ranks that split the batch."""
    sequence_parts: int = 1
    """Number of parts of the residual stream, norms and dropout, one per rank of tp; 1: each rank has them whole."""

    def axis(self, name: str) -> DeviceMesh:
        """Return the one-dimensional mesh of this rank's group along an axis. Raises `RuntimeError` on one device."""
        if self.mesh is None:
            raise RuntimeError(f"there is no axis {name!r}: the program is for one device")
        return self.mesh[name]


@dataclass(frozen=True)
class Figures:
    """Read of a step's figures by the host: the loss, the gradient norm and the activation norms."""

    read: Callable[[Tensor], list[list[float]]] = Tensor.tolist
    """(figures, with a row for each step) → the same figures on the host, which waits for them."""
    read_every: int = 1
    """Number of steps whose figures are read together. 1: each step reads its own, and its norm before its update."""
    tally: TargetTally | None = None
    """Targets that the loss counts. None: it counts every target of a training batch."""


@dataclass(frozen=True)
class Program:
    """Description of a training step. Functions take the built `Step`, so that they see live parameters."""

    device: torch.device
    parts: tuple[nn.Module, ...]
    """Modules of this rank, on the meta device until they are built; the last returns the summed loss. Functions that
    are their attributes (the head's `cross_entropy`, attention's `core`) are replaced there."""
    weights: Weights
    parallel: Parallel
    batches: BatchSource
    """(step index, share) → this rank's rows as one micro-batch, in host memory or already on the device. The step
    moves them there, and `micro_batches` splits them. It is pure, so that any step can be requested again."""
    encode: Callable[[str], Iterable[Any]]
    """Text → arrays of token ids, by the tokenizer of the run's corpus."""
    schedule: Callable[[int], float]
    """Learning rate of a step, set before the step's gradients."""
    gradients: Callable[[Step, Sequence[MicroBatch], int], Tensor]
    """(step, micro-batches, tokens in the global batch) → this rank's summed loss; sets the gradients."""
    gradient_norm: Callable[[Step], Tensor]
    optimizer: Callable[[NamedParameters], OptimizerLike]
    update: Callable[[Step], Tensor]
    """Unscale, compute the norm, clip, step, clear; returns the global gradient norm before clipping."""
    evaluate: Callable[[Step, Iterable[MicroBatch]], tuple[float, float]]
    """(step, batches) → (summed loss, number of targets), without gradients and without dropout."""
    micro_batches: int = 1
    precision: Precision = field(default_factory=Precision)
    step_contexts: tuple[Context, ...] = ()
    """Entered around forward and backward together."""
    finish_gradients: tuple[Callable[[Step], None], ...] = ()
    """Called between the last backward and the update (a tied weight's all-reduce under a pipeline)."""
    optimized: Callable[[NamedParameters], NamedParameters] = tuple
    """Parameters → the tensors that the optimizer updates on this rank, by the same names: whole, views or copies."""
    figures: Figures = field(default_factory=Figures)
    stateful: Mapping[str, Stateful] = field(default_factory=dict)
    witnesses: tuple[object, ...] = ()
    """Objects that show an instrument what a trace cannot see: replayed graphs, offloaded bytes, prepared batches."""

    def witnesses_of(self, kind: type[Witness]) -> list[Witness]:
        """Return the witnesses of one class, in the order in which they were added."""
        return [one for one in self.witnesses if isinstance(one, kind)]

    def witness(self, kind: type[Witness]) -> Witness | None:
        """Return the only witness of a class, or None. Raises `ValueError` if there are several."""
        found = self.witnesses_of(kind)
        if len(found) > 1:
            raise ValueError(f"the program has {len(found)} witnesses of the class {kind.__name__}, not one")
        return found[0] if found else None


@dataclass(frozen=True)
class Step:
    """A built program: materialised parts and the optimizer over their parameters."""

    program: Program
    optimizer: OptimizerLike
    optimized: NamedParameters
    """Tensors that the optimizer updates, by parameter name: the parameters, views of pieces of them, or copies."""
    settings: Mapping[str, object] = field(default_factory=settings)
    """Torch's settings when the step was built."""

    @property
    def parts(self) -> tuple[nn.Module, ...]:
        """Live modules of this rank, in the order of the forward pass."""
        return self.program.parts

    def named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Return this rank's distinct parameters by their names in the whole model; a tied one has its owner's name."""
        return self._named_parameters

    def numbers_of(self, name: str, parameter: Tensor) -> Tensor:
        """Return the numbers of a parameter: itself, or what it packs, in the host's memory."""
        packing = self.program.weights.packed.get(name)
        return parameter if packing is None else packing.unpack(parameter.detach().cpu())

    def stored_name(self, name: str) -> str:
        """Return a parameter's name in a checkpoint: a copy of a tied weight has its owner's."""
        return dict(self.program.weights.tied).get(name, name)

    @cached_property
    def _named_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Cached, because a built step's parameters stay the same objects, and every update needs them."""
        return [item for part in self.parts for item in part.named_parameters()]

    def modules_of(self, kind: type[nn.Module]) -> list[nn.Module]:
        """Return every module of one class, in the order of the forward pass."""
        return [module for part in self.parts for module in part.modules() if isinstance(module, kind)]
