"""The head on a tape when its loss is computed in pieces of rows, each piece's logits twice (`assay.model.loss`).

One operation in place of the projection and the cross-entropy: it keeps what it reads, and at its worst holds the
logits of one piece and their logarithms in float32, in forward as in backward. The logits of the second time are no
FLOPs that the model needs. What it leaves out is the traffic of the logits, so of a head that is narrow beside its
vocabulary the time comes out too short.
"""

from dataclasses import replace
from math import prod

from assay.cost.layers import FRESH, INPLACE, NONE
from assay.cost.step import Cost
from assay.cost.tape import Operation, Tape
from assay.cost.tensors import Tensor

_HEAD = ("head.projection", "head")


def loss_in_chunks(cost: Cost, chunks: int) -> Cost:
    """The ledger when the rows of logits come and go in so many pieces."""
    head = tuple(one for one in cost.tape if one.site in _HEAD)
    before = tuple(one for one in cost.tape if one.site not in _HEAD)
    return replace(cost, tape=(*before, _in_one(cost, head, chunks)))


def _in_one(cost: Cost, head: Tape, chunks: int) -> Operation:
    product, last = head[0], head[-1]
    x, weight = (cost.values[name] for name in product.inputs)
    shape = (prod(x.shape[:-1]), weight.shape[0])
    piece = tuple(Tensor(f"head:{label}", shape, wide=True, chunks=chunks) for label in ("logits", "logarithms"))
    return Operation(
        name="aten.cross_entropy_loss",
        site="head",
        kind="contraction",
        inputs=(x.name, weight.name, "targets"),
        outputs=last.outputs,
        gradients=(FRESH, INPLACE, NONE),
        saves=(x.name, weight.name, "targets"),
        holds=(x.name,),
        flops=product.flops,
        backward_flops=product.flops + product.backward_flops,
        padding_flops=product.flops + product.padding_flops,
        backward="_InPiecesBackward",
        forward_scratch=piece,
        backward_scratch=piece,
        opaque=True,
    )
