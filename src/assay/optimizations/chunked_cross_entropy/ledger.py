"""The head on a tape when its loss is computed in chunks of rows, whose logits are recomputed (`assay.model.loss`).

One operation replaces the projection and the cross-entropy. It saves its inputs. At its peak, in forward as in
backward, it holds one chunk's logits and their logarithms in float32. The recomputed logits are no FLOPs that the model
needs. The traffic of the logits is left out, so the predicted time is too short for a head that is narrow relative to
its vocabulary.
"""

from dataclasses import replace
from math import prod

from assay.cost.layers import FRESH, INPLACE, NONE
from assay.cost.operation import Flops, Operation, Scratch
from assay.cost.step import Cost
from assay.cost.tape import Tape
from assay.cost.tensors import Tensor

_HEAD = ("head.projection", "head")


def loss_in_chunks(cost: Cost, chunks: int) -> Cost:
    """The ledger with one operation for the head, which holds the logits of one of `chunks` chunks at a time."""
    head = tuple(one for one in cost.tape if one.site in _HEAD)
    before = tuple(one for one in cost.tape if one.site not in _HEAD)
    return replace(cost, tape=(*before, _in_one(cost, head, chunks)))


def _in_one(cost: Cost, head: Tape, chunks: int) -> Operation:
    product, last = head[0], head[-1]
    work = product.flops
    x, weight = (cost.values[name] for name in product.inputs)
    shape = (prod(x.shape[:-1]), weight.shape[0])
    piece = tuple(Tensor(f"head:{label}", shape, wide=True, chunks=chunks) for label in ("logits", "logarithms"))
    numbers = Tensor("head:loss and weight of a chunk", (2,), wide=True, batched=False)
    return Operation(
        name="aten.cross_entropy_loss",
        site="head",
        kind="contraction",
        inputs=(x.name, weight.name, "targets"),
        outputs=last.outputs,
        gradients=(FRESH, INPLACE, NONE),
        saves=(x.name, weight.name, "targets"),
        holds=(x.name,),
        flops=Flops(work.forward, work.forward + work.backward, work.forward + work.padding),
        backward="_InPiecesBackward",
        scratch=Scratch((*piece, numbers), piece),
        opaque=True,
    )
