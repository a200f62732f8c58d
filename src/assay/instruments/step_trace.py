"""Watch one training step and record, as plain data, what it executes.

A dispatch mode sees every operator that autograd and the kernels run, on whichever thread backward runs. The phase of
an operator follows from where it runs (`instruments.phase`). The watched step's loss and weights are bit-equal to those
of an unwatched step.

Caveats: a step under the mode is slow, so it is never timed. An ordinary dispatch mode turns compilation off. This one
declares itself a part of the infrastructure, so compiled code stays compiled. Its operators are read from the captured
graph, once per call (`step.compiled`). Sharded tensors are followed down to their local operators.

    with StepTracer(step) as tracer:
        record = train_step(tracer.watch(), index)
    trace = tracer.trace(record.loss, record.targets)

The trace also has the shard of each parameter on this rank, and the names of parameters that share a storage.

A dispatch mode cannot see a replayed graph, compiled code, a copy outside of autograd or another process. A
technique that uses one adds a witness to its program. Here each kind of witness is prepared for the step, and read
after it.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from assay.instruments import operations
from assay.instruments.dispatch_counts import BlockForwards, GraphCalls, Recorder
from assay.instruments.memory.saved_tensors import MovedTensors, SavedTensors
from assay.instruments.memory.storages import bytes_by_dtype, distinct_bytes, dtype_name, identity, storages
from assay.instruments.optimizer import groups, parameter_updates
from assay.instruments.pipeline_calls import record_stages
from assay.instruments.step_counters import ScaledLosses
from assay.model.backward import in_backward
from assay.parallel.dtensor import dimensions, divided_over, local
from assay.records.trace import (
    CompiledGraph,
    Graphs,
    HeldParameter,
    Optimizer,
    Trace,
    TracedBatch,
    TracedMemory,
    TracedPrecision,
)
from assay.step.compiled import Captures, graph_breaks
from assay.step.device_queue import Offload
from assay.step.graphs import StepGraphs
from assay.step.prepared import PreparedSequences
from assay.step.program import Context, MicroBatch, Program, Share, Step, settings
from assay.step.recomputed import Keeper


def describe_shard(name: str, parameter: torch.Tensor, *, trained: bool) -> HeldParameter:
    """Describe the shard of one parameter for a trace."""
    whole = parameter.numel() * parameter.element_size()
    return HeldParameter(
        name=name,
        held_bytes=distinct_bytes([parameter]),
        whole_bytes=whole,
        divided_over=divided_over(parameter),
        dimensions=dimensions(parameter),
        shape=tuple(local(parameter).shape),
        whole_shape=tuple(parameter.shape),
        dtype=dtype_name(parameter.dtype),
        trained=trained,
    )


def _is_own(step: Step) -> bool:
    """Return whether the step's model is a user's own, whose loss counts its targets itself."""
    return step.program.figures.tally is not None


def shared_storages(parts: tuple[torch.nn.Module, ...]) -> tuple[tuple[str, ...], ...]:
    """Groups of parameter names that share one storage."""
    names: dict[int, list[str]] = {}
    for part in parts:
        for name, parameter in part.named_parameters(remove_duplicate=False):
            for storage in storages(parameter):
                names.setdefault(identity(storage), []).append(name)
    return tuple(tuple(group) for group in names.values() if len(group) > 1)


class StepTracer:
    """Context that traces one step of `watch()`; `trace` then returns the result.

    A `whole` step, one of a user's own, has no seams to watch: its gradients are read when its optimizer steps.
    """

    def __init__(self, step: Step, *, whole: bool = False) -> None:
        self.step = step
        self._whole = whole
        self._parameters = {identity(s) for _, parameter in step.named_parameters() for s in storages(parameter)}
        self._blocks = BlockForwards(step.parts)
        self._recorder = Recorder(step, self._parameters, self._blocks)
        self._saved = SavedTensors(self._parameters, self._recorder.origin)
        self._open = ExitStack()
        self._forwards = 0
        self._gradient_bytes: int | None = None
        self._untrained = set(step.program.weights.frozen)
        """Names of parameters that are frozen, or that the loss of a user's own model did not use in the step."""
        self._gradients_together_bytes = 0
        self._updates_in_backward = 0
        self._sequences = 0
        self._data_seconds = 0.0
        self._index = 0
        self._scaled = ScaledLosses(step.program.precision.loss_scale)
        self._schedule: list[str] = []
        self._witnesses = WitnessCounts(step.program, self._parameters)

    def watch(self) -> Step:
        """Return the step to run: same parts and optimizer; its batch, update and reading of figures are marked."""
        program = self.step.program
        figures = replace(program.figures, read=self._read)
        contexts = self._witnesses.step_contexts(program)
        watched = replace(program, update=self._update, figures=figures, batches=self._batches, step_contexts=contexts)
        return replace(self.step, program=watched)

    def __enter__(self) -> "StepTracer":
        hook = self.step.parts[-1].register_forward_hook(self._count_forward)
        self._open.callback(hook.remove)
        for handle in (
            register_optimizer_step_pre_hook(self._before_optimizer),
            register_optimizer_step_post_hook(self._after_optimizer),
        ):
            self._open.callback(handle.remove)
        if self._whole and not self.step.optimizer.param_groups:
            self._gradient_bytes = 0
            for _, parameter in self.step.named_parameters():
                self._open.callback(_after_gradient(parameter, self._accumulated).remove)
        self._open.enter_context(self._witnesses.watched(self._recorder.graphs, self._saved))
        self._open.enter_context(self._blocks.watched())
        self._open.enter_context(self._scaled.watched())
        self._open.enter_context(record_stages(self.step, self._schedule))
        self._open.enter_context(self._recorder)
        self._open.enter_context(self._saved)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    @property
    def complete(self) -> bool:
        """True if a step was watched up to its update."""
        return self._gradient_bytes is not None

    def trace(self, loss: float, targets: int, skipped: int | None = 0) -> Trace:
        """Return the trace of the watched step, given its loss and number of targets.

        `skipped` is the number of updates skipped before it; None: unknown. Raises `RuntimeError` if no step was run.
        """
        if self._gradient_bytes is None:
            raise RuntimeError("no step was traced: run one step of `watch()` inside the context, up to its update")
        program, recorder = self.step.program, self._recorder
        return Trace(
            **recorder.fields(),
            **_place(program.parallel.mesh),
            loss=loss,
            forwards=self._forwards,
            batch=self._batch(targets),
            memory=self._memory(self._gradient_bytes),
            optimizer=self._optimizer(),
            graphs=self._witnesses.graphs(recorder.graphs.graphs(), recorder.captured_contractions),
            precision=TracedPrecision(
                float8=recorder.float8.products(), scaling=self._scaled.scaling(self._index, skipped)
            ),
            parameters=tuple(
                describe_shard(name, parameter, trained=name not in self._untrained)
                for name, parameter in self.step.named_parameters()
            ),
            shared_parameters=shared_storages(self.step.parts),
            read_every=program.figures.read_every,
            schedule=tuple(self._schedule),
            block_forwards=self._blocks.forwards(),
            left_settings={
                name: str(now) for name, now in settings().items() if now != self.step.settings.get(name, now)
            },
        )

    def _batch(self, targets: int) -> TracedBatch:
        return TracedBatch(
            targets=targets,
            sequences=self._sequences,
            prepared=self._witnesses.sequences,
            makers=self._witnesses.makers,
            data_seconds=self._data_seconds,
        )

    def _memory(self, gradient_bytes: int) -> TracedMemory:
        """Return the bytes of the step: of this rank's parameters, gradients, optimizer state and saved tensors."""
        parameters, device = [one for _, one in self.step.named_parameters()], self.step.program.device
        state = list(operations.tensors_in(list(self.step.optimizer.state.values())))
        return TracedMemory(
            saved_bytes=self._saved.highest,
            **self._witnesses.offloaded,
            parameter_bytes=distinct_bytes(parameters),
            offloaded_bytes=distinct_bytes(one for one in parameters if one.device.type != device.type),
            whole_parameter_bytes=sum(one.numel() * one.element_size() for one in parameters),
            gradient_bytes=gradient_bytes,
            gradients_together_bytes=self._gradients_together_bytes,
            optimizer_state_bytes=distinct_bytes(state),
            offloaded_state_bytes=distinct_bytes(one for one in state if one.device.type != device.type),
            whole_state_bytes=bytes_by_dtype(state),
        )

    def _optimizer(self) -> Optimizer:
        updates = parameter_updates(self.step, self._recorder.writes)
        if _is_own(self.step):  # of which some steps may use fewer parameters than others
            updates = tuple(one.model_copy(update={"steps": None}) for one in updates)
        return Optimizer(
            updates=updates,
            groups=groups(self.step),
            updates_in_backward=self._updates_in_backward,
            learning_rate=self.step.program.schedule(self._index),
        )

    def _batches(self, index: int, share: Share) -> Sequence[MicroBatch]:
        self._index = index
        asked = time.perf_counter()
        rows = self.step.program.batches(index, share)
        self._data_seconds += time.perf_counter() - asked
        self._sequences += sum(len(ids) for ids, _ in rows)
        return rows

    def _update(self, step: Step) -> torch.Tensor:
        self._gradient_bytes = self._living_gradient_bytes()
        if self._gradient_bytes and _is_own(self.step):
            self._untrained |= {name for name, one in self.step.named_parameters() if one.grad is None}
        self._recorder.updating += 1
        try:
            return self.step.program.update(step)
        finally:
            self._recorder.updating -= 1

    def _read(self, figures: torch.Tensor) -> list[list[float]]:
        """Count one synchronization: `tolist` calls no operator on a CPU, and one elsewhere."""
        with self._recorder.synchronizations.waiting_for("figures"):
            return self.step.program.figures.read(figures)

    def _accumulated(self, parameter: torch.Tensor) -> None:
        """Add the gradient of a parameter in a step that updates its weights without an optimizer."""
        gradient = parameter.grad
        self._gradient_bytes = (self._gradient_bytes or 0) + distinct_bytes([] if gradient is None else [gradient])

    def _before_optimizer(self, *_: Any) -> None:
        living = self._living_gradient_bytes()
        self._gradients_together_bytes = max(self._gradients_together_bytes, living)
        if self._whole:
            self._gradient_bytes = max(self._gradient_bytes or 0, living)
        self._updates_in_backward += in_backward()
        self._recorder.updating += 1

    def _after_optimizer(self, *_: Any) -> None:
        self._recorder.updating -= 1

    def _living_gradient_bytes(self) -> int:
        gradients = (parameter.grad for _, parameter in self.step.named_parameters())
        return distinct_bytes(gradient for gradient in gradients if gradient is not None)

    def _count_forward(self, *_: Any) -> None:
        if torch.is_grad_enabled() and not in_backward():
            self._forwards += 1
            self._saved.forward_ended()


def _after_gradient(parameter: torch.Tensor, act: Callable[[torch.Tensor], None]) -> RemovableHandle:
    return parameter.register_post_accumulate_grad_hook(act)  # type: ignore[no-any-return, no-untyped-call]


def _place(mesh: DeviceMesh | None) -> dict[str, Any]:
    """Return the fields of a trace that locate this rank in the mesh."""
    if mesh is None:
        return {}
    names = mesh.mesh_dim_names or ()
    return {
        "ranks": dict(zip(names, mesh.shape, strict=True)),
        "place": {axis: mesh.get_local_rank(axis) for axis in names},
    }


class WitnessCounts:
    """Counts of one step of a program while `watched` is entered; `weights` has identities of their storages."""

    def __init__(self, program: Program, weights: set[int]) -> None:
        self._keepers = program.witnesses_of(Keeper)
        self._offload, self._moved = program.witness(Offload), MovedTensors(weights)
        self._captures = program.witness(Captures)
        self._graphs = program.witness(StepGraphs)
        self._prepared = program.witnesses_of(PreparedSequences)
        self.sequences: Mapping[str, int] = {}
        """Number of the step's sequences that each maker prepared."""

    @contextmanager
    def watched(self, calls: GraphCalls, saved: SavedTensors) -> Iterator[None]:
        """Context of the step: compiled code reports to `calls`, and kept tensors to `saved`."""
        before = [one.sequences for one in self._prepared]
        with ExitStack() as stack:
            for keeper in self._keepers:
                keeper.watcher = saved.note
                stack.callback(setattr, keeper, "watcher", None)
            if self._captures is not None:
                stack.enter_context(self._captures.watched(calls.watch))
            if self._graphs is not None:
                stack.enter_context(self._graphs.observed())
            yield
        made = ((one.by, one.sequences - earlier) for one, earlier in zip(self._prepared, before, strict=True))
        self.sequences = {by: count for by, count in made if count}

    @property
    def makers(self) -> Mapping[str, int]:
        """Number of makers of batches, by kind."""
        return {one.by: one.makers for one in self._prepared if one.makers}

    def step_contexts(self, program: Program) -> tuple[Context, ...]:
        """Return the contexts of a step, with those of offloading looked at."""
        around = self._moved.around
        return tuple(partial(around, one) if one is self._offload else one for one in program.step_contexts)

    @property
    def offloaded(self) -> Mapping[str, int]:
        """Fields of `Memory` of tensors that were saved on another device."""
        moved = self._moved
        return {
            "offloaded_saved_bytes": moved.moved_bytes,
            "unmoved_saved_bytes": moved.unmoved_bytes,
            "moved_weight_bytes": moved.weight_bytes,
        }

    def graphs(self, compiled: tuple[CompiledGraph, ...], captured_contractions: int) -> Graphs:
        """Return the record of all graphs, given what the recorder saw of them."""
        return Graphs(
            compiled=compiled,
            graph_breaks=0 if self._captures is None else graph_breaks(),
            training_graphs=0 if self._captures is None else self._captures.trained,
            graph_replays=0 if self._graphs is None else self._graphs.replays,
            captured_contractions=captured_contractions,
        )
