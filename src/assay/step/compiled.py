"""What torch's compiler made of a part: the graphs that it captured, and each of their calls.

Compiled code shows a dispatch mode its library calls and nothing of its fused kernels, so a trace must read the graphs
themselves. `Captures` stands between autograd's partitioner and inductor: it notes each graph as inductor gets it
(forward and backward are two), and tells a watcher whenever the code made from it runs. What is compiled and what runs
are inductor's own. Torch's cache of whole differentiated graphs is left out, since it would pass both by; inductor's
cache of generated code is used as ever.

Regions are compiled one by one (the embedding, each block, the head): blocks are alike, so their code is made once
however many there are, and hooks on a block are called as before.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import OpOverload

_KERNEL = re.compile(r"^\w+ = async_compile\.(?:cpp_pybinding|triton)\(", re.MULTILINE)
"""The definition of a kernel in inductor's code."""


@dataclass(frozen=True, eq=False)
class Call:
    """One operator in a graph, its tensors without data."""

    operator: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    again: bool
    """Of the forward pass, and in the backward graph: it runs a second time."""
    part_of: OpOverload | None = None
    """The operator that was taken apart into this one and others."""


@dataclass(frozen=True, eq=False)
class Graph:
    """What inductor was given to make code of."""

    backward: bool
    calls: tuple[Call, ...]
    kernels: int
    """Loops generated for it; products and the like are calls of libraries."""
    training: bool = True
    """False for a forward that no backward follows, as in an evaluation."""


Watch = Callable[[Graph], AbstractContextManager[Callable[[Any, Any], None]]]
"""Entered around a call of a graph's code; told the call's inputs and outputs."""


@dataclass(eq=False)
class Captures:
    """The graphs of one program, in the order of their capture."""

    options: Mapping[str, Any] = field(default_factory=dict)
    """Inductor's settings that differ from its own."""
    graphs: list[Graph] = field(default_factory=list)
    _watch: Watch | None = None

    @property
    def trained(self) -> int:
        """Number of graphs captured for training."""
        return sum(graph.training for graph in self.graphs)

    def compile(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """The compiled form of a module's forward; a graph break raises. It is compiled when it is first called."""
        compiled: Callable[..., Any] = torch.compile(forward, backend=self._backend, fullgraph=True, dynamic=False)
        return compiled

    @contextmanager
    def watched(self, watch: Watch) -> Iterator[None]:
        """Tell `watch` of every call inside."""
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
            given = list(arguments)  # the code takes its arguments out of the list as it is through with them
            with self._watch(graph) as tell:
                result = run(arguments)
            tell(given, result)
            return result

        code.current_callable = watched
        return code


def graph_breaks() -> int:
    """Places at which torch left compiled code for Python, in this process so far."""
    from torch._dynamo.utils import counters

    return sum(counters["graph_break"].values())


def interpreted(captures: Captures | None) -> AbstractContextManager[Any]:
    """A context in which compiled forwards run as they were written, so that hooks inside them are called."""
    return nullcontext() if captures is None else torch.compiler.set_stance("force_eager")


def _calls(module: torch.fx.GraphModule, backward: bool) -> Iterator[Call]:
    def value(argument: torch.fx.Node) -> Any:
        return argument.meta.get("val")

    for node in module.graph.nodes:
        operator, given = _operator(node)
        if operator is not None:
            args, kwargs = torch.fx.map_arg((given, node.kwargs), value)
            again = backward and node.meta.get("partitioner_tag") == "is_forward"
            whole = node.meta.get("original_aten")
            apart = isinstance(whole, OpOverload) and whole is not operator
            yield Call(operator, args, kwargs, value(node), again, whole if apart else None)


def _operator(node: torch.fx.Node) -> tuple[OpOverload | None, tuple[Any, ...]]:
    """The operator of a node and its arguments; one that may draw noise stands, in a checkpoint, among the arguments of
    what keeps the generator's state."""
    if isinstance(node.target, OpOverload):
        return node.target, node.args
    for place, argument in enumerate(node.args):
        if isinstance(argument, OpOverload):
            return argument, node.args[place + 1 :]
    return None, ()
