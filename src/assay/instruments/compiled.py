"""Operators that compiled code executes in a step, read from its captured graphs.

A dispatch mode cannot see a fused kernel, which is no operator, but would count library calls between kernels twice. So
the mode ignores operators while compiled code runs, and each call counts every operator of the captured graph once.
Forward operators in a backward graph are recomputed there, like those of a checkpoint.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from assay.instruments import operations
from assay.records.trace import CompiledGraph, OperationClass, Phase
from assay.step.compiled import CompiledCall, Graph


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
