"""Probes of a training step: output norms of the first and last block, and the routing statistics of mixtures.

Both cost next to nothing. A hook reduces its block's output to one number, without a copy or a host read. After the
step, the norms of its micro-batches are combined as a root of summed squares, so cutting the batch does not change the
norm. Forwards of an evaluation do not count, nor do recomputed blocks, during which autograd's engine is running.
A mixture reports its routing by the same rule. The figures are summed on the device; `take` sums them once over ranks,
and the host reads them once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from assay.model import Block, MixtureMLP
from assay.model.backward import in_backward
from assay.model.moe import Routing
from assay.step.compiled import Captures
from assay.step.graphs import StepGraphs
from assay.step.program import Step

_UNLIKE = ("pp", "dp", "cp")
"""Mesh axes along which ranks route different layers or different tokens."""


class _InRegion:
    """A block within a compiled region: its forward stores the norm of its output, until that is collected.

    A compiler guards what it reads. Code that appends to a list would be compiled anew for each of its lengths. A block
    with a hook would be compiled anew for each further hook. So the forward has no hook, and only writes.
    """

    def __init__(self, block: nn.Module) -> None:
        self.norm: Tensor | None = None
        self._block, self._forward = block, block.forward
        block.forward = self._noting

    def _noting(self, *args: Any, **kwargs: Any) -> Any:
        output = self._forward(*args, **kwargs)
        if output.requires_grad and self._block.training:
            self.norm = _norm(output)
        return output

    def remove(self) -> None:
        """Restore the forward."""
        self._block.forward = self._forward


def _norm(output: Tensor) -> Tensor:
    dtype = torch.promote_types(output.dtype, torch.float32)
    norm: Tensor = torch.linalg.vector_norm(output.detach(), dtype=dtype)
    return norm


class ActivationNorms:
    """Records the output norms of a step's first and last block until `remove()`."""

    def __init__(self, step: Step) -> None:
        blocks = step.modules_of(Block)
        self._watched = [blocks[0], blocks[-1]] if blocks else []
        self._norms: dict[nn.Module, list[Tensor]] = {block: [] for block in self._watched}
        self._graphs, captures = step.program.witness(StepGraphs), step.program.witness(Captures)
        inside = [one for one in self._norms if captures is not None and captures.encloses(one)]
        self._inside = {block: _InRegion(block) for block in inside}
        self._handles = [one.register_forward_hook(self._note) for one in self._norms if one not in self._inside]
        if inside:
            self._handles += [part.register_forward_hook(self._collect) for part in step.parts]

    def _note(self, block: nn.Module, args: Any, output: Tensor) -> None:
        if output.requires_grad and block.training and not in_backward():
            norm, noted = _norm(output), self._norms[block].append
            noted(norm) if self._graphs is None else self._graphs.hand(norm, noted)

    def _collect(self, *_: object) -> None:
        for block, region in self._inside.items():
            if region.norm is not None:
                self._norms[block].append(region.norm)
                region.norm = None

    def take(self) -> list[Tensor]:
        """Return the norms [first, last] since the last call, over all micro-batches, as scalars on the device."""
        noted = [self._norms[block] for block in self._watched]
        norms = [one[0] if len(one) == 1 else torch.linalg.vector_norm(torch.stack(one)) for one in noted if one]
        for one in self._norms.values():
            one.clear()
        return norms

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        for region in self._inside.values():
            region.remove()


@dataclass(frozen=True)
class LayerRouting:
    """Routing statistics of one layer in one step."""

    tokens: tuple[int, ...]
    """Number of times each expert was chosen, dropped choices included. The sum is tokens times active experts."""
    dropped: float
    """Share of the choices that were dropped because the expert was full."""
    balance: float
    """Load-balancing loss without its coefficient, a mean over micro-batches weighted by choices; 1 if all is even."""

    @property
    def imbalance(self) -> float:
        """Return the busiest expert's tokens divided by the mean; 1 if all is even."""
        return max(self.tokens) * len(self.tokens) / sum(self.tokens)


class RouterStatistics:
    """Sums the routing statistics of every mixture of a step until `remove()`."""

    def __init__(self, step: Step) -> None:
        self._mesh = step.program.parallel.mesh
        self._watched = dict(_mixtures(step))
        self._sums: dict[int, Tensor] = {}
        self._heard = False
        """True if a forward was noted since the last call of `take`."""
        for layer, module in self._watched.items():
            module.watcher = partial(self._note, layer)

    def _note(self, layer: int, routing: Routing) -> None:
        balance = routing.balance.double() * routing.tokens.sum()
        noted = torch.cat((torch.stack((balance, routing.dropped.double())), routing.tokens.double()))
        # Every forward has the same operators, also the first one. It adds in place, because the profiler would not
        # report that the step frees a tensor from before it.
        self._sums.setdefault(layer, torch.zeros_like(noted)).add_(noted)
        self._heard = True

    def take(self) -> list[LayerRouting]:
        """Return one entry per layer of the model, over all micro-batches and ranks since the last call.

        The list is empty if there was no forward in training. Every rank must call it.
        """
        noted, heard = self._sums, self._heard
        self._sums, self._heard = {layer: torch.zeros_like(one) for layer, one in noted.items()}, False
        if not heard:
            return []
        layers = self._watched[min(noted)].config.n_layer
        table = torch.stack([noted.get(layer, torch.zeros_like(noted[min(noted)])) for layer in range(layers)])
        if self._mesh is not None:
            for axis in _UNLIKE:
                dist.all_reduce(table, group=self._mesh.get_group(axis))
        return [_layer_routing(balance, dropped, tokens) for balance, dropped, *tokens in table.tolist()]

    def remove(self) -> None:
        """Remove the watchers."""
        for module in self._watched.values():
            module.watcher = None


def _mixtures(step: Step) -> Iterator[tuple[int, MixtureMLP]]:
    """Yield each mixture of this rank with its layer number in the whole model."""
    for part in step.parts:
        for name, module in part.named_modules():
            if isinstance(module, MixtureMLP):
                yield int(name.split(".")[1]), module


def _layer_routing(balance: float, dropped: float, tokens: list[float]) -> LayerRouting:
    choices = sum(tokens)
    return LayerRouting(tuple(map(int, tokens)), dropped / choices, balance / choices)
