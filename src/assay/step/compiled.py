"""Graphs that torch's compiler captures from a program, and each call of their code.

A dispatch mode sees the library calls of compiled code but not its fused kernels, so a trace must read the graphs
themselves. `Captures` is placed between autograd's partitioner and inductor. It records each graph as inductor receives
it (forward and backward are two), and calls a watcher whenever the graph's code runs. The compiled code is inductor's
own. Torch's cache of whole differentiated graphs is disabled, because it would bypass `Captures`. Inductor's cache of
generated code is used as usual.

Regions are compiled one by one: the embedding, each block, the head. Blocks are alike, so their code is compiled once
for any number of them, and hooks on a block are called as before. Or the whole model is one region. Then hooks of
modules inside are not called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

import torch
from torch import nn
from torch._ops import OpOverload

from assay.step.program import Program

_KERNEL = re.compile(r"^\w+ = async_compile\.(?:cpp_pybinding|triton)\(", re.MULTILINE)
"""Definition of a kernel in inductor's code."""


@dataclass(frozen=True, eq=False)
class CompiledCall:
    """One operator in a graph; its tensors have no data."""

    operator: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    again: bool
    """True for an operator of the forward pass in the backward graph, which recomputes it."""
    part_of: OpOverload | None = None
    """Operator that was decomposed into this one and others."""


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph as inductor received it."""

    backward: bool
    calls: tuple[CompiledCall, ...]
    kernels: int
    """Number of loops generated for it; products and similar operators are library calls."""
    training: bool = True
    """False for a forward without a backward, as in an evaluation."""


Watch = Callable[[Graph], AbstractContextManager[Callable[[Any, Any], None]]]
"""Context entered around a call of a graph's code; its value receives the call's inputs and outputs."""


@dataclass(eq=False)
class Captures:
    """Graphs of one program, in the order of their capture."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings of inductor that differ from its defaults."""
    graphs: list[Graph] = field(default_factory=list)
    regions: WeakSet[nn.Module] = field(default_factory=WeakSet)
    """Modules whose forward is compiled as a whole. The compiler keeps this object, which must not keep weights."""
    _watch: Watch | None = None

    @property
    def trained(self) -> int:
        """Number of graphs captured for training."""
        return sum(graph.training for graph in self.graphs)

    def encloses(self, module: nn.Module) -> bool:
        """True if a module is inside a region, where its hooks are a part of the compiled code."""
        return any(module is not region and module in set(region.modules()) for region in self.regions)

    def compile(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Return a module's forward in a compiled form, which is compiled at its first call. A graph break raises."""
        compiled: Callable[..., Any] = torch.compile(forward, backend=self._backend, fullgraph=True, dynamic=False)
        return compiled

    @contextmanager
    def watched(self, watch: Watch) -> Iterator[None]:
        """Context in which `watch` is entered around every call of compiled code."""
        self._watch = watch
        try:
            yield
        finally:
            self._watch = None

    def _backend(self, module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        from torch._functorch import config
        from torch._inductor.compile_fx import compile_fx

        with config.patch(enable_autograd_cache=False):
            return compile_fx(module, inputs, inner_compile=self._inductor, config_patches=dict(self.options))

    def _inductor(self, module: torch.fx.GraphModule, inputs: Any, **settings: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx_inner

        backward = bool(settings.get("is_backward"))
        calls = tuple(_calls(module, backward))  # before inductor rewrites them
        code: Any = compile_fx_inner(module, inputs, **settings)
        kernels = len(_KERNEL.findall(code.source_code))
        graph = Graph(backward, calls, kernels, training=not settings.get("is_inference"))
        self.graphs.append(graph)
        run = code.current_callable

        def watched(arguments: Any) -> Any:
            if self._watch is None:
                return run(arguments)
            given = list(arguments)  # the code empties the list as it finishes with its arguments
            with self._watch(graph) as tell:
                result = run(arguments)
            tell(given, result)
            return result

        code.current_callable = watched
        return code


def graph_breaks() -> int:
    """Number of graph breaks in this process so far."""
    from torch._dynamo.utils import counters

    return sum(counters["graph_break"].values())


def run_eagerly(program: Program) -> AbstractContextManager[Any]:
    """Context in which compiled forwards run eagerly, so that hooks inside them are called."""
    return nullcontext() if program.witness(Captures) is None else torch.compiler.set_stance("force_eager")


def _calls(module: torch.fx.GraphModule, backward: bool) -> Iterator[CompiledCall]:
    def value(argument: torch.fx.Node) -> Any:
        return argument.meta.get("val")

    for node in module.graph.nodes:
        operator, given = _operator(node)
        if operator is not None:
            args, kwargs = torch.fx.map_arg((given, node.kwargs), value)
            again = backward and node.meta.get("partitioner_tag") == "is_forward"
            whole = node.meta.get("original_aten")
            apart = isinstance(whole, OpOverload) and whole is not operator
            yield CompiledCall(operator, args, kwargs, value(node), again, whole if apart else None)


def _operator(node: torch.fx.Node) -> tuple[OpOverload | None, tuple[Any, ...]]:
    """Return the operator of a node and its arguments.

    In a checkpoint, an operator that may draw random numbers is an argument of another, which preserves the
    generator's state.
    """
    if isinstance(node.target, OpOverload):
        return node.target, node.args
    for place, argument in enumerate(node.args):
        if isinstance(argument, OpOverload):
            return argument, node.args[place + 1 :]
    return None, ()
