"""Record the values of some of a run's steps: batches, random state, gradients, and weights after each update.

The steps are the run's own, of the very program that is timed, and they are untimed. A gradient is recorded just
before the optimizer uses it: summed over micro-batches and ranks, unscaled and clipped. A torch hook runs before each
optimizer's step, and so also finds optimizers that step inside backward. Sharded tensors are gathered whole, at the
same point on every rank.

A baseline cannot have the dropout masks of a run over ranks, or of compiled code on CUDA. The gradients of its steps
cannot be compared then. So a probe differentiates the first batch once more with dropout off, before the first step. It
updates nothing.

    recorder = StepRecorder(step, folder, ranks)
    watched = recorder.watch(step, index)
    with recorder.hooked():
        record = train_step(watched, index)
    recorder.stepped(index, record.loss, record.log_gradient_norm, record.learning_rate)
    recorder.close()
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _disable_current_modes

from assay.model.loss import host
from assay.parallel.dtensor import is_spread, placed_gradient
from assay.parallel.process_rank import ALONE, Ranks
from assay.step.program import MicroBatch, Step
from assay.training.batches import micro_batches_of
from assay.training.gradients import counted_targets
from assay.values.masks import MaskKeeper, Source, pack_mask
from assay.values.shared_memory import SharedMemory
from assay.values.tensor_file import Key, TensorWriter, record_of

Part = Literal["beginning", "middle", "evaluation", "end"]
STEPS = 3
"""Updates that are checked: after one update from zero state Adam moves by lr·sign(g) whatever its betas are."""


class StepRecorder:
    """Records steps of one rank into `folder`, from the step `first` on, until `updates` updates were made.

    The optimizer's state is recorded before the first step and after the last update; with `rounds_state` after each.
    Dropout masks of each step are kept if references have them from there (`masks`). If these cannot have them, a probe
    without dropout is recorded at once. Tensors of a GPU stay in its `memory` while that has room.
    """

    def __init__(
        self,
        step: Step,
        folder: Path,
        ranks: Ranks = ALONE,
        first: int = 0,
        updates: int = STEPS,
        *,
        rounds_state: bool = False,
        masks: Source = "state",
        part: Part = "beginning",
        memory: SharedMemory | None = None,
    ) -> None:
        self.wanted, self.updates = updates, 0
        self.seconds = 0.0
        """Seconds that recording took since the reader last set this to 0."""
        self._writer = TensorWriter(record_of(folder, ranks.rank), memory, digests=ranks.world > 1)
        self._step, self._now, self._first = step, first, first
        self._steps: dict[int, dict[str, Any]] = {}
        self._parameters = {step.stored_name(name): one for name, one in step.named_parameters()}
        self._names = {id(one): step.stored_name(name) for name, one in step.optimized}
        padded = {
            name: len(self._parameters[name]) for name in step.program.weights.rows_at_rest if name in self._parameters
        }
        self._about = {
            "rank": ranks.rank,
            "share": list(step.program.parallel.share),
            "place": _noise_place(step, ranks),
            "part": part,
            "first": first,
            "padded_rows": padded,
        }
        self._rounds_state, self._keeps_masks = rounds_state, masks == "kept"
        self._weights(first)
        if part != "evaluation":
            self._state(first)
            if masks == "none":
                self._probe()

    @property
    def done(self) -> bool:
        """True if enough updates were recorded."""
        return self.updates >= self.wanted

    def watch(self, step: Step, index: int) -> Step:
        """Return the step to run as step `index`, whose gradients are recorded."""
        self._now = index
        self._steps[index] = {"groups": {}}
        return replace(step, program=replace(step.program, gradients=self._gradients(step)))

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Context in which a watched step runs."""
        with ExitStack() as stack:
            stack.callback(register_optimizer_step_pre_hook(self._before_optimizer).remove)
            yield
        with self._aside():
            self.updates += bool(self._steps[self._now]["groups"])
            self._weights(self._now + 1)
            if self._rounds_state or self.done:
                self._state(self._now + 1)

    def stepped(self, index: int, loss: float, log_norm: float, rate: float) -> None:
        """Store the figures of a recorded step, once they were read."""
        if index in self._steps:
            self._steps[index] |= {"loss": loss, "log_norm": log_norm, "rate": rate}

    def close(self) -> None:
        """Write the index."""
        self._writer.close(**self._about, steps={str(index): one for index, one in self._steps.items()})

    def _probe(self) -> None:
        """Record loss and gradients of the first batch with dropout off. Weights and random state stay unchanged."""
        step, program = self._step, self._step.program
        micro_batches = micro_batches_of(program, self._first)
        tokens = sum(targets.numel() for _, targets in micro_batches) * program.parallel.share[1]
        for part in step.parts:
            part.eval()
        try:
            summed = program.gradients(step, micro_batches, tokens)
            for finish in program.finish_gradients:
                finish(step)
            program.precision.loss_scale.unscale(step)
            counted = host(counted_targets(program, tokens))
            self._about["probe_loss"] = float(program.parallel.reduce_loss(torch.stack([summed]))[0]) / counted
            for name, parameter in self._parameters.items():
                if (gradient := placed_gradient(parameter)) is not None:
                    self._add("probe", self._first, name, gradient)
        finally:
            for part in step.parts:
                part.train()
            for parameter in self._parameters.values():
                parameter.grad = None

    def evaluated(
        self, groups: Mapping[int, tuple[float, float]], batches: Callable[[int], Sequence[MicroBatch]]
    ) -> None:
        """Record some groups of an evaluation of the present weights: summed loss, targets and batches of each."""
        self._about["evaluated"] = {str(number): sums for number, sums in groups.items()}
        self._noise()
        for name, buffer in (item for part in self._step.parts for item in part.named_buffers()):
            self._writer.add(Key("buffer", self._first, name), buffer)
        for number in groups:
            for place, (ids, targets) in enumerate(batches(number)):
                self._writer.add(Key(f"window ids {number}", self._first, str(place)), ids)
                self._writer.add(Key(f"window targets {number}", self._first, str(place)), targets)

    def _noise(self) -> None:
        """Record the state of the random generators."""
        device = self._step.program.device
        self._writer.add(Key("noise", self._now, "cpu"), torch.get_rng_state())
        if device.type == "cuda":
            self._writer.add(Key("noise", self._now, "cuda"), torch.cuda.get_rng_state(device))

    def _gradients(self, step: Step) -> Callable[[Step, Sequence[MicroBatch], int], Tensor]:
        inner = step.program.gradients

        def gradients(step: Step, micro_batches: Sequence[MicroBatch], tokens: int) -> Tensor:
            with self._aside():
                self._noise()
                if (own := step.program.stateful.get("buffers")) is not None:  # a forward may change them
                    for name, buffer in own.state_dict().items():
                        self._writer.add(Key("training buffer", self._now, name), buffer)
                for number, (ids, targets) in enumerate(micro_batches):
                    self._writer.add(Key("ids", self._now, str(number)), ids)
                    self._writer.add(Key("targets", self._now, str(number)), targets)
            with self._masks_kept():
                return inner(step, micro_batches, tokens)

        return gradients

    @contextmanager
    def _masks_kept(self) -> Iterator[None]:
        if not self._keeps_masks:
            yield
            return
        shapes: list[list[int]] = []

        def keep(mask: Tensor) -> None:
            with self._aside():
                self._writer.add(Key("mask", self._now, str(len(shapes))), pack_mask(mask))
                shapes.append(list(mask.shape))

        with MaskKeeper(keep) as keeper:
            yield
        self._steps[self._now]["masks"] = {"shapes": shapes, "count": keeper.count}

    def _before_optimizer(self, optimizer: Any, *_: Any) -> None:
        with self._aside():
            groups = self._steps[self._now]["groups"]
            for group in optimizer.param_groups:
                options = {name: _plain(value) for name, value in group.items() if name != "params"}
                for one in group["params"]:
                    name = self._names.get(id(one))
                    if name is None:
                        continue
                    parameter = self._parameters[name]
                    gradient = parameter.grad if parameter.grad is not None else one.grad
                    if gradient is not None:
                        self._add("gradient", self._now, name, used_gradient(optimizer, gradient))
                        groups[name] = options

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """Context of recording: outside of any tracing mode, without gradients, and counted in `seconds`."""
        began = time.perf_counter()
        with _disable_current_modes(), torch.no_grad():
            yield
        self.seconds += time.perf_counter() - began

    def _weights(self, step: int) -> None:
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                self._add("weight", step, name, parameter)

    def _state(self, step: int) -> None:
        """Record the optimizer's state, which is empty before the first update."""
        with torch.no_grad():
            for one, entries in self._step.optimizer.state.items():
                for key, value in entries.items():
                    if isinstance(value, Tensor | int | float):
                        self._add_state(step, self._names[id(one)], key, _wide(value))

    def _add_state(self, step: int, name: str, key: str, value: Tensor) -> None:
        """Record one entry of the state, padded rows included, because the replay updates them, too."""
        whole, stored = _whole(value)
        self._writer.add(Key("state", step, f"{name}|{key}"), whole, stored=stored)

    def _add(self, kind: str, step: int, name: str, tensor: Tensor) -> None:
        whole, stored = _whole(tensor)
        rows = self._step.program.weights.rows_at_rest.get(name)
        self._writer.add(Key(kind, step, name), whole if rows is None else whole[:rows], stored=stored)
        if rows is not None:
            self._writer.add(Key(f"{kind} padding", step, name), whole[rows:].abs().sum())


def _noise_place(step: Step, ranks: Ranks) -> list[int]:
    """Return this rank's index along each axis whose ranks compute other layers, rows or positions."""
    divided = step.program.parallel.sequence_parts > 1
    return [index for axis, index in ranks.place.items() if axis != "tp" or divided]


def _whole(tensor: Tensor) -> tuple[Tensor, bool]:
    """The whole of a sharded tensor, and whether this rank stores it."""
    if not is_spread(tensor):
        return tensor.detach(), True
    whole: Tensor = tensor.detach().full_tensor()  # type: ignore[attr-defined]
    return whole, not any(tensor.device_mesh.get_coordinate() or ())


def _wide(value: Tensor | float) -> Tensor:
    """A state's entry as a plain tensor; an 8-bit moment is dequantized."""
    if not isinstance(value, Tensor):
        return torch.tensor(value)
    return value.dequantize() if hasattr(value, "codes") else value


def used_gradient(optimizer: Any, gradient: Tensor) -> Tensor:
    """Return a gradient as the optimizer uses it: torch's fused kernels divide by the optimizer's `grad_scale`."""
    scale = getattr(optimizer, "grad_scale", None)
    return gradient if scale is None else gradient / scale


def _plain(value: Any) -> Any:
    """A group's option as a JSON value; other types become strings."""
    if isinstance(value, Tensor):
        return float(value)
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value if isinstance(value, bool | int | float | str | None) else str(value)
