"""Watch one train step and say, as plain data, what it really did.

A dispatch mode sees every operator that autograd and the kernels run, on whichever thread backward runs. The phase of
one is told by where it runs: inside the program's update, or inside an optimizer's step wherever that is, it is
`update`; inside the autograd engine it is `backward`, or `recompute` where a checkpoint repeats its forward there; else
`forward`.
Nothing is changed: the watched step's loss and weights are bit-equal to an unwatched one's.

Caveats: a step under the mode is slow, so it is never timed. An ordinary dispatch mode turns compilation off; this one
declares itself a part of the infrastructure, which leaves compiled code compiled, and what runs inside is read from the
captured graph, once a call (`step.compiled`). Sharded tensors are followed down to their local operators.

    with StepTracer(step) as tracer:
        record = train_step(tracer.watch(), index)
    trace = tracer.trace(record.loss, record.tokens)
"""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import torch
from torch._ops import OpOverload
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from assay.measure import operations
from assay.measure.blocks import BlockForwards, runs_again
from assay.measure.communication import Axes, collective_of, payload_bytes
from assay.measure.compiled import GraphCalls, class_of
from assay.measure.held import held, shared
from assay.measure.masks import MaskCounts
from assay.measure.optimizer import Writes, groups, updated
from assay.measure.order import recorded
from assay.measure.saved import SavedTensors
from assay.measure.scaling import ScaledLosses
from assay.measure.storages import bytes_by_dtype, distinct_bytes, identity, storages
from assay.measure.synchronizations import Synchronizations
from assay.step.compiled import Call, graph_breaks
from assay.step.program import MicroBatch, Share, Step
from assay.step.trace import Communication, Operation, OperationClass, Phase, Trace

_Key = tuple[str, str, Phase, OperationClass, str]


class StepTracer:
    """A context in which one step of `watch()` is traced; `trace` then gives the account."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self._parameters = {identity(s) for _, parameter in step.named_parameters() for s in storages(parameter)}
        self._blocks = BlockForwards(step.parts)
        self._recorder = _Recorder(step, self._parameters, self._blocks)
        self._saved = SavedTensors(self._parameters, self._recorder.origin)
        self._open = ExitStack()
        self._forwards = 0
        self._gradient_bytes: int | None = None
        self._gradients_together_bytes = 0
        self._updates_in_backward = 0
        self._sequences = 0
        self._data_seconds = 0.0
        self._index = 0
        self._scaled = ScaledLosses(step.program.loss_scale)
        self._schedule: list[str] = []
        self._prepared: Counter[str] = Counter()

    def watch(self) -> Step:
        """The step to run: the same parts and optimizer; its batch, its update and the reading of its figures are
        marked."""
        program = self.step.program
        return replace(self.step, program=replace(program, update=self._update, read=self._read, batches=self._batches))

    def __enter__(self) -> "StepTracer":
        hook = self.step.parts[-1].register_forward_hook(self._count_forward)
        self._open.callback(hook.remove)
        for handle in (
            register_optimizer_step_pre_hook(self._before_optimizer),
            register_optimizer_step_post_hook(self._after_optimizer),
        ):
            self._open.callback(handle.remove)
        for kept in self.step.program.kept:
            kept.watcher = self._saved.note
            self._open.callback(setattr, kept, "watcher", None)
        if (offload := self.step.program.offload) is not None:
            offload.moved_bytes = 0
        if (captures := self.step.program.captures) is not None:
            self._open.enter_context(captures.watched(self._recorder.graphs.watch))
        if (graphs := self.step.program.graphs) is not None:
            self._open.enter_context(graphs.observed())
        self._open.callback(self._count_prepared, Counter(self.step.program.prepared))
        self._open.enter_context(self._blocks.watched())
        self._open.enter_context(self._scaled.watched())
        self._open.enter_context(recorded(self.step, self._schedule))
        self._open.enter_context(self._recorder)
        self._open.enter_context(self._saved)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)

    def trace(self, loss: float, targets: int, skipped: int | None = 0) -> Trace:
        """The account of the watched step, given its loss and number of targets. Raises when none was run.

        `skipped` updates were left out before it; None: unknown.
        """
        if self._gradient_bytes is None:
            raise RuntimeError("no step was traced: run one step of `watch()` inside the context, up to its update")
        device = self.step.program.device
        mesh, state = self.step.program.mesh, list(operations.tensors_in(list(self.step.optimizer.state.values())))
        return Trace(
            operations=self._recorder.operations(),
            loss=loss,
            saved_bytes=self._saved.highest,
            offloaded_saved_bytes=0 if (offload := self.step.program.offload) is None else offload.moved_bytes,
            forwards=self._forwards,
            targets=targets,
            sequences=self._sequences,
            prepared=dict(self._prepared),
            makers=dict(self.step.program.makers),
            data_seconds=self._data_seconds,
            parameter_bytes=distinct_bytes(parameter for _, parameter in self.step.named_parameters()),
            offloaded_bytes=distinct_bytes(p for _, p in self.step.named_parameters() if p.device.type != device.type),
            parameters=tuple(held(name, parameter) for name, parameter in self.step.named_parameters()),
            gradient_bytes=self._gradient_bytes,
            gradients_together_bytes=self._gradients_together_bytes,
            updates_in_backward=self._updates_in_backward,
            optimizer_state_bytes=distinct_bytes(state),
            offloaded_state_bytes=distinct_bytes(one for one in state if one.device.type != device.type),
            whole_state_bytes=bytes_by_dtype(state),
            updates=updated(self.step, self._recorder.writes),
            groups=groups(self.step),
            masks=self._recorder.masks.masks(),
            scaling=self._scaled.scaling(self._index, skipped),
            schedule=tuple(self._schedule),
            learning_rate=self.step.program.schedule(self._index),
            ranks={} if mesh is None else dict(zip(mesh.mesh_dim_names or (), mesh.shape, strict=True)),
            place={} if mesh is None else {axis: mesh.get_local_rank(axis) for axis in mesh.mesh_dim_names or ()},
            whole_parameter_bytes=sum(p.numel() * p.element_size() for _, p in self.step.named_parameters()),
            communications=self._recorder.communications(),
            block_forwards=self._blocks.forwards(),
            compiled=self._recorder.graphs.graphs(),
            graph_replays=0 if (graphs := self.step.program.graphs) is None else graphs.replays,
            captured_contractions=self._recorder.captured_contractions,
            graph_breaks=0 if self.step.program.captures is None else graph_breaks(),
            training_graphs=0 if (captures := self.step.program.captures) is None else captures.trained,
            shared_parameters=shared(self.step.parts),
            synchronizations=dict(self._recorder.synchronizations.counts),
        )

    def _batches(self, index: int, share: Share) -> Sequence[MicroBatch]:
        self._index = index
        asked = time.perf_counter()
        rows = self.step.program.batches(index, share)
        self._data_seconds += time.perf_counter() - asked
        self._sequences += sum(len(ids) for ids, _ in rows)
        return rows

    def _count_prepared(self, before: Counter[str]) -> None:
        self._prepared = self.step.program.prepared - before

    def _update(self, step: Step) -> torch.Tensor:
        self._gradient_bytes = self._living_gradient_bytes()
        self._recorder.updating += 1
        try:
            return self.step.program.update(step)
        finally:
            self._recorder.updating -= 1

    def _read(self, figures: torch.Tensor) -> list[list[float]]:
        """`tolist` passes no operator on a CPU, and one elsewhere."""
        with self._recorder.synchronizations.waiting_for("figures"):
            return self.step.program.read(figures)

    def _before_optimizer(self, *_: Any) -> None:
        self._gradients_together_bytes = max(self._gradients_together_bytes, self._living_gradient_bytes())
        self._updates_in_backward += _in_backward()
        self._recorder.updating += 1

    def _after_optimizer(self, *_: Any) -> None:
        self._recorder.updating -= 1

    def _living_gradient_bytes(self) -> int:
        gradients = (parameter.grad for _, parameter in self.step.named_parameters())
        return distinct_bytes(gradient for gradient in gradients if gradient is not None)

    def _count_forward(self, *_: Any) -> None:
        if torch.is_grad_enabled() and not _in_backward():
            self._forwards += 1
            self._saved.forward_ended()


@dataclass
class _Tally:
    """Executions of one kind."""

    count: int = 0
    flops: int = 0
    bytes: int = 0
    largest_bytes: int = 0


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operators, and remembers which one made each storage."""

    supports_higher_order_operators = True
    """Those inside compiled code: what keeps the generator's state around an operator of a checkpoint."""

    def __init__(self, step: Step, parameters: set[int], blocks: BlockForwards) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.captured_contractions = 0
        self.updating = 0
        """How many updates are under way, one inside the other."""
        self.synchronizations = Synchronizations(step)
        self.writes = Writes(step)
        self.masks = MaskCounts()
        self._parameters = parameters
        self._axes = Axes(step.program.mesh)
        self._replayed = step.program.graphs
        self._blocks = blocks
        self._tallies: dict[_Key, _Tally] = {}
        self._sent: dict[tuple[str, str, Phase], _Tally] = {}
        self._origins: dict[int, str] = {}
        self.graphs = GraphCalls(self._count_compiled, self._remember_compiled)

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Compiled code stays compiled under it."""
        return True

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a tensor made of others: its own dispatch runs first, and its parts come back here
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self.graphs.running or not isinstance(func, OpOverload):
            return result
        self._record(func, args, kwargs, result)
        if self.updating:
            self.writes.note(func, args, kwargs)
        elif self._replayed is None:  # what a device records for a graph cannot be read while it is recorded
            self.masks.note(func, args, result, self._phase())
        return result

    def origin(self, storage: int) -> str:
        """What made a storage: an operator, the cast of a weight, or something before the step (`inputs`)."""
        return self._origins.get(storage, "inputs")

    def operations(self) -> tuple[Operation, ...]:
        """Everything recorded, in the order of first execution."""
        return tuple(
            Operation(name=name, part_of=whole, phase=phase, operation_class=kind, dtype=dtype, **vars(tally))
            for (name, whole, phase, kind, dtype), tally in self._tallies.items()
        )

    def communications(self) -> tuple[Communication, ...]:
        """Every collective recorded, in the order of first execution."""
        return tuple(
            Communication(collective=name, axis=axis, phase=phase, count=tally.count, payload_bytes=tally.bytes)
            for (name, axis, phase), tally in self._sent.items()
        )

    def _record(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        arguments = list(operations.tensors_in((args, kwargs)))
        results = list(operations.tensors_in(result))
        name, phase = operations.name_of(func), self._phase()
        view = operations.is_view(func, arguments, results)
        kind = operations.class_of(func, view=view)
        moved = 0 if view else operations.bytes_of(func, [*arguments, *results])
        self._count(Call(func, args, kwargs, result, again=False), phase, kind, moved)
        if kind == "contraction" and self._replayed is not None and self._replayed.capturing:
            self.captured_contractions += 1
        if operations.waits_for_device(func, args, kwargs, result):
            self.synchronizations.note(phase, [*arguments, *results])
        if kind == "communication" and (collective := collective_of(func)):
            sent = self._sent.setdefault((collective, self._axes.of(args, kwargs), phase), _Tally())
            sent.count += 1
            sent.bytes += payload_bytes(args, kwargs, result)
        self._remember(name, arguments, results)

    def _count_compiled(self, call: Call, phase: Phase) -> None:
        """A fused kernel moves what no operator tells, so of compiled code only contractions have bytes."""
        kind = class_of(call)
        tensors = operations.tensors_in((call.args, call.kwargs, call.result))
        self._count(call, phase, kind, operations.bytes_of(call.operator, tensors) if kind == "contraction" else 0)

    def _count(self, call: Call, phase: Phase, kind: OperationClass, moved_bytes: int) -> None:
        """Add one execution to its tally, whether it was dispatched or stands in a compiled graph."""
        arguments, results = (list(operations.tensors_in(of)) for of in ((call.args, call.kwargs), call.result))
        whole = "" if call.part_of is None else operations.name_of(call.part_of)
        dtype = operations.dtype_of(arguments, results)
        flops = 0
        if kind == "contraction":
            dtype = operations.multiplied_in(dtype, arguments)
            flops = operations.flops_of(call.operator, call.args, call.kwargs, call.result)
        key = (operations.name_of(call.operator), whole, phase, kind, dtype)
        tally = self._tallies.setdefault(key, _Tally())
        tally.count += 1
        tally.flops += flops
        tally.bytes += moved_bytes
        tally.largest_bytes = max([tally.largest_bytes, *(one.numel() * one.element_size() for one in results)])
        self._blocks.note(phase, kind, flops)

    def _remember_compiled(self, given: Any, made: Any) -> None:
        self._remember("compiled code", list(operations.tensors_in(given)), list(operations.tensors_in(made)))

    def _remember(self, name: str, arguments: list[torch.Tensor], results: list[torch.Tensor]) -> None:
        given = {identity(one.untyped_storage()) for one in arguments}
        label = "weight copies" if name == "aten._to_copy" and given <= self._parameters else name
        for one in results:
            made = identity(one.untyped_storage())
            if made not in given:
                self._origins[made] = label

    def _phase(self) -> Phase:
        if self.updating:
            return "update"
        if _in_backward():
            return "recompute" if runs_again() else "backward"
        return "forward"


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1
