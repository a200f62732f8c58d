"""What compiled code did in a step, read from the graphs that it was made of.

A fused kernel is no operator, so a dispatch mode cannot see it; the library calls between kernels it would see a second
time. So the mode looks away while compiled code runs, and every operator of the captured graph counts once a call.
Operators of the forward pass that stand in a backward graph run again there, as a checkpoint's do.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from assay.measure import operations
from assay.step.compiled import Call, Graph
from assay.step.trace import CompiledGraph, OperationClass, Phase


class GraphCalls:
    """Counts the calls of each graph's code, and hands on what is in it.

    `count` is told every operator of a call and its phase, `made` the call's inputs and outputs.
    """

    def __init__(self, count: Callable[[Call, Phase], None], made: Callable[[Any, Any], None]) -> None:
        self.running = False
        """Whether compiled code runs now."""
        self._count, self._made = count, made
        self._calls: Counter[Graph] = Counter()

    @contextmanager
    def watch(self, graph: Graph) -> Iterator[Callable[[Any, Any], None]]:
        """The context of one call."""
        self._calls[graph] += 1
        for call in graph.calls:
            self._count(call, "forward" if not graph.backward else "recompute" if call.again else "backward")
        self.running = True
        try:
            yield self._made
        finally:
            self.running = False

    def graphs(self) -> tuple[CompiledGraph, ...]:
        """Every graph whose code ran, in the order of first execution."""
        return tuple(_summary(graph, calls) for graph, calls in self._calls.items())


def class_of(call: Call) -> OperationClass:
    """The class of an operator in a graph."""
    return operations.class_of(call.operator, view=_is_view(call))


def _is_view(call: Call) -> bool:
    return bool(call.operator.is_view)


def _summary(graph: Graph, calls: int) -> CompiledGraph:
    return CompiledGraph(
        backward=graph.backward,
        calls=calls,
        operations=sum(not _is_view(call) for call in graph.calls),
        contractions=sum(class_of(call) == "contraction" for call in graph.calls),
        kernels=graph.kernels,
    )
