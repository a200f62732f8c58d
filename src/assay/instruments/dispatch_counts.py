"""The dispatch mode behind a trace: counts every operator of a step by phase, class and dtype.

Operators of compiled code are read from its captured graphs. A dispatch mode cannot see a fused kernel, which is no
operator, but would count library calls between kernels twice. So the mode ignores operators while compiled code runs,
and each call counts every operator of the captured graph once. Forward operators in a backward graph are recomputed
there, like those of a checkpoint.

Each block's forward operations are counted apart, to compare them with those that backward recomputes. Hooks on a block
mark when its forward begins and ends. They also work on compiled and checkpointed blocks, which replace the function
that the block calls. Recomputed operations call no hook of the block; only their phase marks them.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from assay.instruments import operations
from assay.instruments.collective_payload import Axes, collective_of, payload_bytes
from assay.instruments.memory.storages import identity, storages
from assay.instruments.optimizer import Writes
from assay.instruments.phase import current_phase
from assay.instruments.step_counters import Float8Products, MaskCounts, Synchronizations
from assay.model.blocks import blocks_of
from assay.records.trace import BlockForward, CompiledGraph, OperationClass, Phase, TracedCommunication, TracedOperation
from assay.step.compiled import CompiledCall, Graph
from assay.step.graphs import StepGraphs
from assay.step.program import Step


@dataclass
class _Forward:
    """Counts of one block so far."""

    contractions: int = 0
    flops: int = 0
    last_contractions: int = 0
    last_flops: int = 0
    normalizations: int = 0


class BlockForwards:
    """Counts the forward operations of every block in the given modules while `watched` is entered."""

    def __init__(self, parts: Iterable[nn.Module]) -> None:
        self._blocks = blocks_of(parts)
        self._found: dict[int, _Forward] = {}
        self._now: _Forward | None = None
        self._last: int | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Hook the blocks, so that each marks the begin and end of its forward."""
        with ExitStack() as hooks:
            for module in self._blocks:
                for handle in (
                    module.register_forward_pre_hook(self._begin, prepend=True),
                    module.register_forward_hook(self._end, prepend=True),  # before a probe's hook, which also computes
                ):
                    hooks.callback(handle.remove)
            yield

    def note(self, phase: Phase, kind: OperationClass, flops: int) -> None:
        """Count one executed operator."""
        if self._now is None or phase != "forward":
            return
        if kind == "contraction":
            self._now.contractions += 1
            self._now.flops += flops
            self._last = flops
        self._now.normalizations += kind == "normalization"

    def forwards(self) -> tuple[BlockForward, ...]:
        """Counts of each block that ran, in the order of the model."""
        return tuple(BlockForward(block=block, **vars(found)) for block, found in sorted(self._found.items()))

    def _begin(self, module: nn.Module, *_: object) -> None:
        self._now, self._last = self._found.setdefault(self._blocks[module], _Forward()), None

    def _end(self, *_: object) -> None:
        if self._now is not None and self._last is not None:
            self._now.last_contractions += 1
            self._now.last_flops += self._last
        self._now = None


class GraphCalls:
    """Counts the calls of each graph's code, and reports their operators.

    `count` receives every operator of a call and its phase; `made` receives the call's inputs and outputs.
    """

    def __init__(self, count: Callable[[CompiledCall, Phase], None], made: Callable[[Any, Any], None]) -> None:
        self.running = False
        """True while compiled code runs."""
        self._count, self._made = count, made
        self._calls: Counter[Graph] = Counter()

    @contextmanager
    def watch(self, graph: Graph) -> Iterator[Callable[[Any, Any], None]]:
        """Context of one call of a graph's code."""
        self._calls[graph] += 1
        for call in graph.calls:
            self._count(call, "forward" if not graph.backward else "recompute" if call.again else "backward")
        self.running = True
        try:
            yield self._made
        finally:
            self.running = False

    def graphs(self) -> tuple[CompiledGraph, ...]:
        """Summaries of the graphs whose code ran, in the order of first execution."""
        return tuple(_summary(graph, calls) for graph, calls in self._calls.items())


def class_of(call: CompiledCall) -> OperationClass:
    """The class of an operator in a graph."""
    return operations.class_of(call.operator, view=_is_view(call))


def _is_view(call: CompiledCall) -> bool:
    return bool(call.operator.is_view)


def _summary(graph: Graph, calls: int) -> CompiledGraph:
    return CompiledGraph(
        backward=graph.backward,
        calls=calls,
        operations=sum(not _is_view(call) for call in graph.calls),
        contractions=sum(class_of(call) == "contraction" for call in graph.calls),
        kernels=graph.kernels,
    )


_Key = tuple[str, str, Phase, OperationClass, str]
_ArgumentsAndResults = tuple[list[torch.Tensor], list[torch.Tensor]]


@cache
def _is_wrapper(kind: type) -> bool:
    """True for a wrapper subclass of a tensor."""
    return hasattr(kind, "__tensor_flatten__")


@dataclass
class _Tally:
    """Sums over the executions of one kind of operator or collective."""

    count: int = 0
    flops: int = 0
    bytes: int = 0
    largest_bytes: int = 0


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operators, and remembers which operator created each storage."""

    supports_higher_order_operators = True
    """Compiled code contains some: they preserve the generator's state around an operator of a checkpoint."""

    def __init__(self, step: Step, parameters: set[int], blocks: BlockForwards) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.captured_contractions = 0
        self.updating = 0
        """Number of nested updates that are running."""
        self.synchronizations = Synchronizations(step)
        self.writes = Writes(step)
        self.masks = MaskCounts()
        self.float8 = Float8Products()
        self._parameters = parameters
        self.recomputed_blocks: set[int] = set()
        self._block_of = {
            identity(storage): int(name.split(".")[1])
            for name, parameter in step.named_parameters()
            if re.match(r"blocks\.\d+\.", name)
            for storage in storages(parameter)
        }
        self._axes = Axes(step.program.parallel.mesh)
        self._replayed = step.program.witness(StepGraphs)
        self._blocks = blocks
        self._tallies: dict[_Key, _Tally] = {}
        self._sent: dict[tuple[str, str, Phase, str], _Tally] = {}
        self._origins: dict[int, str] = {}
        self.graphs = GraphCalls(self._count_compiled, self._remember_compiled)

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return True, so that compiled code stays compiled under this mode."""
        return True

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if any(map(_is_wrapper, types)):
            return NotImplemented  # a wrapper subclass dispatches first, then its inner tensors are dispatched here
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self.graphs.running or not isinstance(func, OpOverload):
            return result
        phase = current_phase(updating=self.updating > 0)
        self._record(CompiledCall(func, args, kwargs, result, again=False), phase)
        if self.updating:
            self.writes.note(func, args, kwargs)
        elif self._replayed is None:  # values cannot be read while a CUDA graph is captured
            self.masks.note(func, args, result, phase)
        return result

    def origin(self, storage: int) -> str:
        """Origin of a storage: an operator's name, `weight copies` (cast weights) or `inputs` (before the step)."""
        return self._origins.get(storage, "inputs")

    def fields(self) -> dict[str, Any]:
        """Return the fields of a trace that were recorded here, by name."""
        return {
            "operations": self.operations(),
            "communications": self.communications(),
            "masks": self.masks.masks(),
            "recomputed_blocks": tuple(sorted(self.recomputed_blocks)),
            "synchronizations": dict(self.synchronizations.counts),
        }

    def operations(self) -> tuple[TracedOperation, ...]:
        """Every operator recorded, in the order of first execution."""
        return tuple(
            TracedOperation(name=name, part_of=whole, phase=phase, operation_class=kind, dtype=dtype, **vars(tally))
            for (name, whole, phase, kind, dtype), tally in self._tallies.items()
        )

    def communications(self) -> tuple[TracedCommunication, ...]:
        """Every collective recorded, in the order of first execution."""
        return tuple(
            TracedCommunication(
                collective=name, axis=axis, phase=phase, count=tally.count, payload_bytes=tally.bytes, dtype=dtype
            )
            for (name, axis, phase, dtype), tally in self._sent.items()
        )

    def _record(self, call: CompiledCall, phase: Phase) -> None:
        func, args, kwargs, result = call.operator, call.args, call.kwargs, call.result
        arguments, results = operations.tensors_in(*args, *kwargs.values()), operations.tensors_in(result)
        view = operations.is_view(func, arguments, results)
        kind = operations.class_of(func, view=view)
        moved = 0 if view else operations.bytes_of(func, [*arguments, *results])
        self._count(call, phase, kind, moved, (arguments, results))
        self.float8.note(call, phase, readable=self._replayed is None)
        if kind == "contraction" and self._replayed is not None and self._replayed.capturing:
            self.captured_contractions += 1
        if operations.waits_for_device(func, args, kwargs, result):
            self.synchronizations.note(phase, [*arguments, *results])
        if kind == "communication" and (collective := collective_of(func)):
            dtype = operations.dtype_of(arguments, results)
            sent = self._sent.setdefault((collective, self._axes.of(args, kwargs), phase, dtype), _Tally())
            sent.count += 1
            sent.bytes += payload_bytes(args, kwargs, result)
        if phase == "recompute":
            read = (identity(storage) for one in arguments for storage in storages(one))
            self.recomputed_blocks.update(self._block_of[one] for one in read if one in self._block_of)
        if not view:  # the results of a view have the origin of its argument
            self._remember(operations.name_of(func), arguments, results)

    def _count_compiled(self, call: CompiledCall, phase: Phase) -> None:
        """Count one operator of compiled code. Only contractions have bytes: a fused kernel's are unknown."""
        kind = class_of(call)
        tensors = operations.tensors_in(*call.args, *call.kwargs.values()), operations.tensors_in(call.result)
        moved = operations.bytes_of(call.operator, chain(*tensors)) if kind == "contraction" else 0
        self._count(call, phase, kind, moved, tensors)
        self.float8.note(call, phase, readable=False)

    def _count(
        self, call: CompiledCall, phase: Phase, kind: OperationClass, moved_bytes: int, tensors: _ArgumentsAndResults
    ) -> None:
        """Add one execution to its tally, dispatched or from a compiled graph."""
        arguments, results = tensors
        whole = "" if call.part_of is None else operations.name_of(call.part_of)
        dtype = operations.dtype_of(arguments, results)
        flops = 0
        if kind == "contraction":
            dtype = operations.multiplied_in(dtype, arguments)
            flops = operations.flops_of(call.operator, call.args, call.kwargs, call.result)
        key = (operations.name_of(call.operator), whole, phase, kind, dtype)
        tally = self._tallies.get(key) or self._tallies.setdefault(key, _Tally())
        tally.count += 1
        tally.flops += flops
        tally.bytes += moved_bytes
        for one in results:
            tally.largest_bytes = max(tally.largest_bytes, one.numel() * one.element_size())
        self._blocks.note(phase, kind, flops)

    def _remember_compiled(self, given: Any, made: Any) -> None:
        self._remember("compiled code", operations.tensors_in(given), operations.tensors_in(made))

    def _remember(self, name: str, arguments: list[torch.Tensor], results: list[torch.Tensor]) -> None:
        given = {identity(one.untyped_storage()) for one in arguments}
        label = "weight copies" if name == "aten._to_copy" and given <= self._parameters else name
        for one in results:
            made = identity(one.untyped_storage())
            if made not in given:
                self._origins[made] = label
