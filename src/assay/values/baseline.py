"""The plain program at given weights, batches and random state: reference losses and gradients.

In float32 the program is the baseline of every comparison. It clips by itself, and an exact technique must equal it bit
for bit. In float64 it is the ground truth, and two plain lines here clip its gradients. With operations that round, it
shows how far honest rounding moves the values at these very weights.
"""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.batchnorm import _BatchNorm

from assay.config import ResolvedRun
from assay.data import Prepared
from assay.model.moe import MixtureMLP
from assay.model.own_batches import OwnBatches
from assay.model.own_model import batches_of
from assay.reference.expected import Expected, Rounding
from assay.step.program import MicroBatch, NamedParameters, OptimizerLike, Program, Step
from assay.training.build import baseline, build
from assay.training.gradients import forwards
from assay.training.loop import train_step
from assay.training.step_record import StepRecord
from assay.values.by_rows import compute_by_documents, rows_at_once
from assay.values.computed import Computed, Rounded, clip_gradients, norm_of
from assay.values.masks import Noise, given_masks, source_of_masks
from assay.values.nearness import unit_roundoff
from assay.values.rounding import FusedAttention, Imitated, dtype_of, round_in_place, round_to

_TYPICAL_ROUNDOFF = 0.42
"""Root mean square of a rounding error, in roundoffs of the number itself: numbers are spread evenly over a decade."""
_OF_FIRST_STEPS = 0.5
"""Time beside references of a replayed step, relative to that of the first steps: it was 0.4 to 0.6."""


def processor_seconds(device: torch.device) -> float:
    """Return a clock of the work on a device: on a CPU that of this thread, which others do not disturb."""
    return time.thread_time() if device.type == "cpu" else time.perf_counter()


class _Catcher:
    """Optimizer that copies the gradients it receives, and updates nothing."""

    def __init__(self, parameters: NamedParameters) -> None:
        self.param_groups: list[dict[str, Any]] = []
        self.state: Mapping[Any, Any] = {}
        self.caught: dict[str, Tensor] = {}
        self._parameters = parameters

    def step(self) -> None:
        self.caught = {name: one.grad.clone() for name, one in self._parameters if one.grad is not None}

    def state_dict(self) -> dict[str, Any]:
        return {"state": {}, "param_groups": []}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Ignore the state: none is kept."""


def _no_weight(name: str, shape: torch.Size) -> Tensor:
    """Return zeros, which take no memory of their own and no time."""
    return torch.zeros(()).expand(shape)


class Reference:
    """The baseline program of a run in one dtype. `clip` is the largest gradient norm; 0 turns clipping off.

    Documents and adapters are those of `expected`. Each document of a row may be computed by itself. Adapters are
    merged into the weights of the plain model, and the gradients are theirs.
    """

    def __init__(
        self,
        run: ResolvedRun,
        expected: Expected,
        data: Prepared,
        device: torch.device,
        dtype: torch.dtype,
        clip: float,
    ) -> None:
        model, adapters = expected.model, expected.adapters
        self.device, self._model, self._adapters, self._clip = device, model, adapters, clip
        self._clips = dtype is torch.float64 or adapters is not None
        training = run.training.model_copy(update={"gradient_clip": 0.0 if self._clips else clip})
        changes = {"optimizations": (), "model": model, "training": training, "ranks": 1, "batch_divisor": 1}
        program = baseline(run.model_copy(update=changes), data, device)
        if dtype is torch.float64:  # the float32 program has the initial weights, and each step sets its own
            program = replace(program, weights=replace(program.weights, initialize=_no_weight))
        for part in program.parts:
            part.to(dtype)
        if expected.document_end is not None:
            compute_by_documents(program.parts[0], expected.document_end)
        self.seconds = 0.0
        """Processor time in which steps were computed."""
        self._optimizer: _Catcher | None = None
        self._step: Step = build(replace(program, optimizer=self._catch))

    def _catch(self, parameters: NamedParameters) -> OptimizerLike:
        self._optimizer = _Catcher(parameters)
        return self._optimizer

    def warm(self, tokens: int, rounding: Rounding | None = None) -> None:
        """Take a step on one row of so many tokens. The first of a process is slow, and so is the first that rounds."""
        weights = self.weights()
        if self._adapters is not None:
            weights |= {name: torch.zeros(shape) for name, shape in self._adapters.shapes(self._model).items()}
        row = torch.zeros(1, tokens, dtype=torch.long)
        given = weights, [(row, row)], Noise({"cpu": torch.get_rng_state()})
        _ = self.at(*given, dropout=False) if rounding is None else self.rounded_at(*given, rounding, dropout=False)
        self.seconds = 0.0

    @property
    def own_batches(self) -> OwnBatches | None:
        """Batches of a user's own, as this program's model gives them; None: it has those of its corpus."""
        return batches_of(self._step.parts)

    def weights(self) -> dict[str, Tensor]:
        """Copies of the current weights; before the first call of `at`, the initial ones."""
        return {name: one.detach().clone() for name, one in self._step.named_parameters()}

    def at(
        self,
        weights: Mapping[str, Tensor],
        batches: Sequence[tuple[Tensor, Tensor]],
        noise: Noise,
        *,
        dropout: bool = True,
        batch_statistics: bool = False,
        buffers: Mapping[str, Tensor] | None = None,
        rounding: Rounding | None = None,
    ) -> Computed:
        """Return loss and gradients of a step at `weights`, with the dropout masks of `noise`.

        `batches` are the step's forwards: token ids and targets, each `[rows, T]`, or inputs and targets of a user's
        own. Without `dropout` modules are as in an evaluation, except with `batch_statistics` those that normalize by a
        batch. `buffers` are values of buffers by name; others stay as they are. With `rounding`, operations of forward
        and backward round. Sets the global random state.
        """
        began = processor_seconds(self.device)
        self._set(weights, buffers or {}, noise)
        program = self._step.program
        if rounding is not None:
            program = replace(program, gradients=partial(self._rounded_gradients, rounding))
        record = self._taken(program, batches, noise, dropout, dropout or batch_statistics)
        caught = self._optimizer.caught if self._optimizer is not None else {}
        found, log_norm = caught, record.log_gradient_norm
        if self._adapters is not None and caught:
            found = self._adapters.gradients(caught, weights)
            log_norm = math.log(norm_of(found) or math.nan)
        gradients = clip_gradients(found, self._clip) if self._clips else found
        self.seconds += processor_seconds(self.device) - began
        return Computed(record.loss, gradients, log_norm)

    def loss_at(
        self,
        weights: Mapping[str, Tensor],
        batches: Sequence[tuple[Tensor, Tensor]],
        noise: Noise,
        *,
        dropout: bool = True,
    ) -> float:
        """Like `at`, but without a backward: return the loss alone."""
        began = processor_seconds(self.device)
        self._set(weights, {}, noise)
        program = replace(self._step.program, gradients=forwards, update=_no_update)
        loss = self._taken(program, batches, noise, dropout, dropout).loss
        self.seconds += processor_seconds(self.device) - began
        return loss

    def _taken(
        self,
        program: Program,
        batches: Sequence[tuple[Tensor, Tensor]],
        noise: Noise,
        dropout: bool,
        batch_statistics: bool,
    ) -> StepRecord:
        """Take a step of a variant of the program."""
        if self._optimizer is not None:
            self._optimizer.caught = {}  # a step whose gradients are not finite makes no update
        for part in self._step.parts:
            part.train(dropout)
            for module in part.modules():
                if isinstance(module, _BatchNorm):
                    module.train(batch_statistics)
        program = replace(program, batches=lambda step, share: batches)
        with given_masks(noise.masks if dropout else None):
            return train_step(replace(self._step, program=program), 0)

    def disturbed_at(
        self,
        weights: Mapping[str, Tensor],
        batches: Sequence[tuple[Tensor, Tensor]],
        noise: Noise,
        draw: int,
        **options: Any,
    ) -> Computed:
        """Like `at`, with errors such as another order of summation has: of weights, and of a fused attention."""
        with FusedAttention():
            return self.at(perturb(weights, unit_roundoff(torch.float32), draw), batches, noise, **options)

    def evaluated_at(
        self,
        weights: Mapping[str, Tensor],
        batches: Sequence[tuple[Tensor, Tensor]],
        noise: Noise,
        buffers: Mapping[str, Tensor],
    ) -> tuple[float, float]:
        """Return the mean loss and the targets of an evaluation at `weights`: forwards only, without dropout.

        Without targets the loss is not a number.
        """
        self._set(weights, buffers, noise)
        moved = [(inputs.to(self.device), targets.to(self.device)) for inputs, targets in batches]
        summed, targets = self._step.program.evaluate(self._step, moved)
        return summed / targets if targets else math.nan, targets

    def _set(self, weights: Mapping[str, Tensor], buffers: Mapping[str, Tensor], noise: Noise) -> None:
        """Set weights, buffers and the global random state."""
        if self._adapters is not None:
            weights = self._adapters.merged(weights)
        with torch.no_grad():
            for name, buffer in ((name, one) for part in self._step.parts for name, one in part.named_buffers()):
                if name in buffers:
                    buffer.copy_(buffers[name])
            for name, parameter in self._step.named_parameters():
                parameter.copy_(weights[name])
        torch.set_rng_state(noise.states["cpu"])
        if "cuda" in noise.states:
            torch.cuda.set_rng_state(noise.states["cuda"], self.device)

    def rounded_at(
        self,
        weights: Mapping[str, Tensor],
        batches: Sequence[tuple[Tensor, Tensor]],
        noise: Noise,
        rounding: Rounding,
        *,
        draw: int = 0,
        **options: Any,
    ) -> Rounded:
        """Like `at`, with operations that round: how far rounding alone moves a loss and gradients.

        Rounding errors may cancel in one loss by chance. So their spread over all signs is computed as well, to first
        order. It is the root of the sum of squares of gradient times error. A `draw` above 0 also shakes the weights.
        """
        dtype = dtype_of(rounding)
        unit = unit_roundoff(dtype)
        if draw:
            weights = perturb(weights, _TYPICAL_ROUNDOFF * unit, draw)
        with _results_watched(self._step, unit) as squares:
            found = self.at(weights, batches, noise, rounding=rounding, **options)
        caught = self._optimizer.caught if self._optimizer is not None else {}
        squares += [_square(one, round_to(weights[name], dtype) - weights[name]) for name, one in caught.items()]
        return Rounded(found.loss, found.gradients, found.log_norm, sum(squares) ** 0.5)

    def _rounded_gradients(
        self, rounding: Rounding, step: Step, micro_batches: Sequence[MicroBatch], tokens: int
    ) -> Tensor:
        routers = [one.router.weight for part in step.parts for one in part.modules() if isinstance(one, MixtureMLP)]
        with Imitated(rounding, routers):
            loss = self._step.program.gradients(step, micro_batches, tokens)
        round_in_place([one.grad for _, one in step.named_parameters() if one.grad is not None], rounding)
        return loss


def _no_update(step: Step) -> Tensor:
    """Return 1 as the norm of no gradients."""
    return torch.ones((), device=step.program.device)


class References:
    """The baseline programs of a run, each built when it is first needed, and kept for later records."""

    def __init__(self, run: ResolvedRun, expected: Expected, data: Prepared, device: torch.device) -> None:
        self.probes = source_of_masks(run, expected, device) == "none"
        """True if gradients are compared at dropout 0, because the baseline cannot have the run's masks."""
        self._clip = 0.0 if self.probes else run.training.gradient_clip
        self.seconds_of_steps: list[float] = []
        """Processor times of the steps of the float32 program so far."""
        self._spent = self._stated = 0.0
        self.wide_groups = 0
        """Groups of a lossy run's evaluations, so far, that have float32's loss."""
        self._built = (run, expected, data, device)

    def build(self) -> None:
        """Build both programs, and find how many rows they compute at once.

        On a CPU, programs whose rows are tokens take a step.
        """
        _ = self.near, self.truth, self.rows
        _, expected, _, device = self._built
        model = expected.model
        if device.type == "cpu" and model.own is None:
            self.near.warm(model.context_length)
            if expected.gradients.rounding is not None:
                self.near.warm(model.context_length, expected.gradients.rounding)
            self.truth.warm(model.context_length)

    def baseline_steps(self, seconds: float) -> float | None:
        """Return how many float32 steps a check took; None before the first of them.

        The unit is the median of all steps so far. What a check states corrects the earlier ones, so all together they
        are the time so far in this unit.
        """
        self._spent += seconds
        if not self.seconds_of_steps:
            return None
        earlier, self._stated = self._stated, self._spent / median(self.seconds_of_steps)
        return self._stated - earlier

    @property
    def replay_steps(self) -> float | None:
        """Number of float32 steps that a replayed step of the middle takes, by the check of the first steps.

        It is one, and half of the time that this check spent beside its references. The unit is the fastest step,
        because the first one of a process is slower.
        """
        if not self.seconds_of_steps:
            return None
        built: list[Reference] = [vars(self)[name] for name in ("near", "truth") if name in vars(self)]
        beside = self._spent - sum(one.seconds for one in built)
        return 1 + _OF_FIRST_STEPS * max(beside, 0.0) / min(self.seconds_of_steps)

    @cached_property
    def rows(self) -> int | None:
        """Rows of a batch that references compute at once; None if they compute them all."""
        run, expected, _, device = self._built
        return rows_at_once(run, expected.model, device)

    @cached_property
    def near(self) -> Reference:
        """The program in float32."""
        return Reference(*self._built, torch.float32, self._clip)

    @cached_property
    def truth(self) -> Reference:
        """The program in float64."""
        return Reference(*self._built, torch.float64, self._clip)


@contextmanager
def _results_watched(step: Step, unit: float) -> Iterator[list[float]]:
    """Collect, for each result of a module without submodules, the square by which its rounding moves the loss.

    The result is rounded already, so its error is the typical one of its size. `unit` is the roundoff of its dtype.
    """
    squares: list[float] = []
    typical = (_TYPICAL_ROUNDOFF * unit) ** 2

    def watch(module: Module, arguments: Sequence[object], result: object) -> None:
        unchanged = bool(arguments) and result is arguments[0]  # as without dropout
        if isinstance(result, Tensor) and result.requires_grad and not unchanged:
            found = result.detach()
            result.register_hook(lambda gradient: squares.append(typical * _square(gradient, found)))  # type: ignore[no-untyped-call]

    leaves = [one for part in step.parts for one in part.modules() if not any(one.children())]
    handles = [one.register_forward_hook(watch) for one in leaves]
    try:
        yield squares
    finally:
        for handle in handles:
            handle.remove()


def perturb(weights: Mapping[str, Tensor], size: float, seed: int) -> dict[str, Tensor]:
    """Return tensors with random relative errors of a standard deviation of `size`."""
    noise = torch.Generator().manual_seed(seed)
    return {
        name: one * (1 + size * torch.randn(one.shape, generator=noise).to(one)) if one.is_floating_point() else one
        for name, one in weights.items()
    }


def _square(gradient: Tensor, error: Tensor) -> float:
    """Return the variance of a loss over the signs of errors, in first order."""
    return float(torch.linalg.vector_norm(gradient * error.to(gradient))) ** 2
