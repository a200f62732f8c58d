"""Sequence parallelism on a tape of split matrices: outside the pairs, a rank has a part of the positions.

The all-reduce after a pair becomes a reduce-scatter, whose backward is an all-gather. Before a pair there is an
all-gather, whose backward is a reduce-scatter (arXiv:2205.05198). Positions are the second axis and torch communicates
along the first, so each tensor sent or received is copied once into contiguous order. The whole input of a pair is
saved for backward. A norm's weight sees a part of the positions, so its gradient is summed after the last backward of a
step.
"""

from collections.abc import Iterator
from dataclasses import replace

from assay.cost.collectives import Communication
from assay.cost.operation import Collectives, Gradient, Operation, Scratch, Sending
from assay.cost.step_cost import Cost
from assay.cost.tensor import Tensor

_AXIS = "tp"
_GATHER, _SCATTER = Sending("all_gather", _AXIS), Sending("reduce_scatter", _AXIS)
_NORMS = ("attention_norm", "mlp_norm", "head.norm")
_POSITIONS = "embedding.position.weight"


def divide_positions(cost: Cost) -> Cost:
    """The ledger of one of the ranks that divide every matrix, if they divide the positions outside the pairs, too."""
    parts = cost.sequence_parts
    tape = tuple(_Divided(cost).tape())
    # The stages of a pipeline send each other parts of the positions.
    given = tuple(_part(one, parts) if len(one.shape) == 3 else one for one in cost.batch.tensors)
    buffers = tuple(_part(one, parts) for one in cost.buffers)
    sent = tuple(one.cut(parts) if one.collective == "send" else one for one in cost.sent)
    sums = [
        Communication("all_reduce", _AXIS, one.nbytes, 1, "gradients of norms", one.dtype)
        for name, one in cost.pieces.items()
        if name.rpartition(".")[0].endswith(_NORMS)
    ]
    norms = Communication("all_reduce", _AXIS, cost.reported_norm_bytes, 1, "the activation norms", "float32")
    batch = replace(cost.batch, tensors=given)
    return replace(cost, tape=tape, batch=batch, buffers=buffers, sent=sent).sending(*sums, norms)


def _part(tensor: Tensor, parts: int) -> Tensor:
    """This rank's part of the positions of a tensor `[B, T, …]`."""
    rows, length, *rest = tensor.shape
    return replace(tensor, shape=(rows, length // parts, *rest))


class _Divided:
    """Rewrites the tape of a rank of tensor parallelism."""

    def __init__(self, cost: Cost) -> None:
        self.cost, self.parts = cost, cost.sequence_parts
        self.wholes: dict[str, str] = {}
        """Name of the gathered whole, by the name of its part."""
        self.renamed: dict[str, str] = {}

    def tape(self) -> Iterator[Operation]:
        """The operations of the rewritten tape."""
        for operation in self.cost.tape:
            if operation.backward == "all_reduce":
                yield from self._gathering(operation)
            elif operation.name == "all_reduce" and operation.backward == "identity":
                yield self._scattering(operation)
            elif _between_pairs(operation):
                yield from self._on_part(operation)
            else:
                yield operation.reading(self.renamed)

    def _gathering(self, operation: Operation) -> Iterator[Operation]:
        """The all-gather before a pair; both first matrices of a gated pair read the same whole."""
        (x,), (view,) = operation.inputs, operation.outputs
        if x in self.wholes:
            self.renamed[view.name] = self.wholes[x]
            return
        self.wholes[x] = view.name
        whole = replace(view, view_of=None)
        yield replace(
            operation,
            name="all_gather",
            outputs=(whole,),
            backward="reduce_scatter",
            scratch=Scratch((whole,), self._on_the_way(whole)),
            collectives=Collectives(_GATHER, _SCATTER),
        )

    def _scattering(self, operation: Operation) -> Operation:
        """The reduce-scatter after a pair."""
        (whole,) = operation.outputs
        return replace(
            operation,
            name="reduce_scatter",
            outputs=(_part(whole, self.parts),),
            gradients=(Gradient.FRESH,),
            backward="all_gather",
            scratch=Scratch(self._on_the_way(whole), (whole,)),
            collectives=Collectives(_SCATTER, _GATHER),
        )

    def _on_the_way(self, whole: Tensor) -> tuple[Tensor, ...]:
        """Temporaries of a reduce-scatter: the whole in contiguous order, and gloo's copy of it, to sum in place."""
        return (whole, whole) if self.cost.kernels.copied_gathers else (whole,)

    def _on_part(self, operation: Operation) -> Iterator[Operation]:
        if _POSITIONS in operation.inputs:
            positions = self._own_positions(operation.site)
            yield positions
            x, _ = operation.inputs
            operation = replace(
                operation,
                inputs=(x, positions.outputs[0].name),
                gradients=(operation.gradients[0], Gradient.FRESH),
            )
        yield operation.making(lambda one: _part(one, self.parts))

    def _own_positions(self, site: str) -> Operation:
        """View of the learned weights of this rank's positions; their gradient is gathered."""
        whole = self.cost.parameters[_POSITIONS]
        shape = (whole.shape[0] // self.parts, *whole.shape[1:])
        part = replace(whole, name=f"{_POSITIONS}.part", shape=shape, view_of=_POSITIONS)
        return Operation(
            name="aten.split",
            site=site,
            kind="movement",
            inputs=(_POSITIONS,),
            outputs=(part,),
            gradients=(Gradient.INPLACE,),
            backward="all_gather",
            collectives=Collectives(backward=_GATHER),
        )


def _between_pairs(operation: Operation) -> bool:
    """True for norms, dropout and residual sums. A look-up in a part of the vocabulary is not divided by positions."""
    site = operation.site
    if site == "embedding":
        return operation.name not in ("aten.embedding", "aten.view")
    on_stream = site.startswith("blocks.") and site.count(".") == 1
    return on_stream or (site.endswith((*_NORMS, "dropout")) and ".core" not in site)
