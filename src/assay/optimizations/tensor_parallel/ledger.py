"""Tensor parallelism on a tape: tensors between the two matrices of a pair are divided, all others are whole.

The first matrix of a pair computes a part of its outputs, and returns a partial gradient of its input. The second
computes a partial sum. A pair therefore sends a whole tensor once in forward and once in backward, each an all-reduce
into a new tensor (arXiv:1909.08053). The vocabulary is divided with its embedding and its head. The loss is computed
from parts of the logits, and three numbers a token are summed (torch's `loss_parallel`). If the rows of a weight do not
divide evenly, the last ranks have fewer.

Each expert of a mixture is such a pair, too, and all experts of a layer communicate together. They send the rows of all
choices, k times the residual stream. The router is whole on every rank. If a grouped product does not take the width of
a part, experts are multiplied one after the other.

With sequence parallelism a rank has a part of the positions outside of the pairs. The all-reduce after a pair becomes a
reduce-scatter, whose backward is an all-gather. Before a pair there is an all-gather, whose backward is a
reduce-scatter (arXiv:2205.05198). Positions are the second axis and torch communicates along the first, so each tensor
sent or received is copied once into contiguous order. The whole input of a pair is saved for backward. A norm's weight
sees a part of the positions, so its gradient is summed after the last backward of a step.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from assay.cost.collectives import Communication
from assay.cost.layers import GROUPED, Tape
from assay.cost.operation import Collectives, Gradient, Operation, Scratch, Sending, Tensor
from assay.cost.rewrites.experts import by_experts
from assay.cost.step_cost import Cost

_AXIS = "tp"
_ALL_REDUCE = Sending("all_reduce", _AXIS)
_FIRST = ("attention.qkv", "mlp.up", "mlp.gate")
_SECOND = ("attention.projection", "mlp.down")


def split_matrices(cost: Cost) -> Cost:
    """The ledger of one of the ranks that divide every matrix."""
    learned = {name: _weight(cost, name, tensor) for name, tensor in cost.parameters.items()}
    pieces = {name: _weight(cost, name, tensor) for name, tensor in cost.pieces.items()}
    tape = tuple(one for run in by_experts(cost.tape) for one in _rewritten_run(cost, *run, learned))
    own = replace(cost, tape=tape, parameters=learned).holding(pieces).sending(*_norms_of_heads(pieces))
    return (divide_positions(own) if cost.sequence_parts > 1 else own).measuring_norm(_AXIS)


def _norms_of_heads(pieces: Mapping[str, Tensor]) -> Iterator[Communication]:
    """All-reduces of the norms of queries and keys, which every rank has whole but uses on its own heads only."""
    for name, tensor in pieces.items():
        if name.endswith((".q_norm.weight", ".k_norm.weight")):
            yield Communication("all_reduce", _AXIS, tensor.nbytes, 1, "gradients of norms", tensor.dtype)


def _weight(cost: Cost, name: str, whole: Tensor) -> Tensor:
    """This rank's shard: rows of a first matrix and of the vocabulary, columns of a second one."""
    degree, index = cost.mesh.degree(_AXIS), cost.place[_AXIS]
    owner = name.rpartition(".")[0]
    if owner.endswith(_FIRST) or owner in ("embedding.token", "head.projection"):
        return whole.piece(degree, index)
    if owner.endswith(_SECOND) and len(whole.shape) > 1:
        return replace(whole, shape=(whole.shape[0], whole.shape[1] // degree))
    if owner.endswith(".experts"):
        experts, wide, narrow = whole.shape
        divided = (wide, narrow // degree) if name.endswith(".down") else (wide // degree, narrow)
        return replace(whole, shape=(experts, *divided))
    return whole


def _rewritten_run(cost: Cost, experts: str, run: Tape, learned: Mapping[str, Tensor]) -> Iterator[Operation]:
    if experts:
        yield from _experts(cost, run, learned)
    else:
        for operation in run:
            yield from _rewritten(cost, operation, learned)


def _rewritten(cost: Cost, operation: Operation, learned: Mapping[str, Tensor]) -> Iterator[Operation]:
    degree, inner = cost.mesh.degree(_AXIS), _inside_block(operation.site)
    if inner in _FIRST:
        yield from _first(operation, cost, degree)
    elif inner in _SECOND:
        yield from _summed(_less_work(operation, degree))
    elif inner.split(".")[0] in _paired(cost) and not inner.endswith("dropout"):
        yield _less_work(_parted(operation, cost), degree)
    elif operation.name == "aten.embedding":
        yield from _looked_up(operation, cost, learned)
    elif operation.site == "head.projection":
        yield from _first(operation, cost, degree, rows=learned[operation.inputs[1]].shape[0])
    elif operation.site == "head":
        yield from _loss(operation, cost)
    else:
        yield operation


def _paired(cost: Cost) -> tuple[str, ...]:
    """Branches of a block that are divided between the two matrices of a pair; of a mixture only its experts are."""
    mixture = any(name.endswith("router.weight") for name in cost.parameters)
    return ("attention",) if mixture else ("attention", "mlp")


def _inside_block(site: str) -> str:
    return site.split(".", 2)[2] if site.startswith("blocks.") and site.count(".") > 1 else ""


def _first(operation: Operation, cost: Cost, degree: int, rows: int | None = None) -> Iterator[Operation]:
    """A product whose input is whole; the gradient of the input is a partial sum and is all-reduced."""
    x = cost.values[operation.inputs[0]]
    whole = _whole(operation.site, x)
    yield whole
    (out,) = operation.outputs
    part = replace(out, shape=(*out.shape[:-1], rows or out.shape[-1] // degree))
    yield replace(_less_work(operation, degree).reading({x.name: whole.outputs[0].name}), outputs=(part,))


def _whole(site: str, x: Tensor) -> Operation:
    """Identity on a tensor that every rank reads whole; its backward all-reduces the ranks' partial gradients."""
    return Operation(
        name="identity",
        site=site,
        kind="movement",
        inputs=(x.name,),
        outputs=(replace(x, name=f"{site}:whole", view_of=x.name),),
        gradients=(Gradient.FRESH,),
        backward="all_reduce",
        collectives=Collectives(backward=_ALL_REDUCE),
    )


def _experts(cost: Cost, run: Tape, learned: Mapping[str, Tensor]) -> Iterator[Operation]:
    """All pairs of a layer's mixture, whose first products read the same rows."""
    degree, rows = cost.mesh.degree(_AXIS), cost.values[run[0].inputs[0]]
    whole = _whole(run[0].site, rows)
    yield whole
    for operation in run:
        one = _ungrouped(_less_work(operation, degree).reading({rows.name: whole.outputs[0].name}), learned)
        if operation is run[-1]:
            yield from _summed(one)
        else:
            yield _parted(one, cost)


def _ungrouped(operation: Operation, learned: Mapping[str, Tensor]) -> Operation:
    """The grouped product; if a part's width is no multiple of 8, a loop over experts, which saves no ends of rows."""
    if operation.name != GROUPED or all(size % 8 == 0 for size in learned[operation.inputs[1]].shape[1:]):
        return operation
    x, weight, _ = operation.inputs
    return replace(
        operation,
        name="aten.mm",
        inputs=(x, weight),
        gradients=operation.gradients[:2],
        saves=(x, weight),
        backward="MmBackward",
    )


def _summed(operation: Operation) -> Iterator[Operation]:
    """A product or a look-up whose result is a partial sum, and its all-reduce."""
    (out,) = operation.outputs
    partial = replace(out, name=f"{out.name}.partial")
    yield replace(operation, outputs=(partial,))
    yield Operation(
        name="all_reduce",
        site=operation.site,
        kind="movement",
        inputs=(partial.name,),
        outputs=(out,),
        gradients=(Gradient.ALIAS,),
        backward="identity",
        collectives=Collectives(_ALL_REDUCE),
    )


def _looked_up(operation: Operation, cost: Cost, learned: Mapping[str, Tensor]) -> Iterator[Operation]:
    """A look-up in a part of the vocabulary: its gradient is as wide as the whole, of which a part is then taken.

    If the head has the same weight, the two gradients are added into a third tensor while both are alive.
    """
    name, ids = operation.inputs
    part = learned[name]
    table = replace(cost.parameters[name], name=f"{operation.site}:table", view_of=name)
    tied = any(name in one.inputs for one in cost.tape if one.site == "head.projection")
    yield Operation(
        name="aten.view",
        site=operation.site,
        kind="movement",
        inputs=(name,),
        outputs=(table,),
        gradients=(Gradient.INPLACE,),
        backward="gradient sum",
        scratch=Scratch(backward=(part,) if tied else ()),
    )
    how = (Gradient.FRESH, Gradient.NONE)
    yield from _summed(replace(operation, inputs=(table.name, ids), gradients=how))


def _loss(operation: Operation, cost: Cost) -> Iterator[Operation]:
    """The loss on parts of the logits, their logarithms and their gradient; three numbers a token are all-reduced."""
    parted, piece = _parted(operation, cost), _part(cost.values[operation.inputs[0]], cost)
    if operation.name == "aten._log_softmax":
        # The temporary is the logits minus their maximum; the loss computes the gradient of the logits directly.
        yield replace(parted, scratch=Scratch((piece,)), gradients=(Gradient.ALIAS,))
        yield from (_number(label, operation.outputs[0]) for label in ("maximum", "sum"))
    elif operation.name == "aten.nll_loss_forward":
        yield _number("picked", cost.values[operation.inputs[0]])
        # For each token: target, the target's index in this part, row, the amount subtracted there, gradient.
        numbers = [replace(piece, shape=piece.shape[:1], dtype=dtype) for dtype in ("int64",) * 3 + ("float32",) * 2]
        yield replace(parted, scratch=Scratch(backward=(piece, piece, *numbers)))
    else:
        yield parted


def _number(label: str, of: Tensor) -> Operation:
    return Operation(
        name="all_reduce",
        site="head",
        kind="movement",
        inputs=(of.name,),
        outputs=(replace(of, name=f"head:{label}", shape=(of.shape[0], 1)),),
        gradients=(Gradient.NONE,),
        collectives=Collectives(_ALL_REDUCE),
    )


def _less_work(operation: Operation, degree: int) -> Operation:
    return replace(
        operation,
        flops=operation.flops.divided(degree),
    )


def _parted(operation: Operation, cost: Cost) -> Operation:
    """The operation with everything that it makes divided."""
    return operation.making(lambda one: _part(one, cost))


def _part(tensor: Tensor, cost: Cost) -> Tensor:
    """This rank's part of a tensor: of its heads if it has any, else of the last axis (hidden units, vocabulary)."""
    if not tensor.shape:
        return tensor
    merged_with_rows = ".core" in tensor.name and len(tensor.shape) == 3
    axis = 1 if len(tensor.shape) == 4 else 0 if merged_with_rows else len(tensor.shape) - 1
    return tensor.piece(cost.mesh.degree(_AXIS), cost.place[_AXIS], axis)


_GATHER, _SCATTER = Sending("all_gather", _AXIS), Sending("reduce_scatter", _AXIS)
_NORMS = ("attention_norm", "mlp_norm", "head.norm")
_POSITIONS = "embedding.position.weight"


def divide_positions(cost: Cost) -> Cost:
    """The ledger of one of the ranks that divide every matrix, if they divide the positions outside the pairs, too."""
    parts = cost.sequence_parts
    tape = tuple(_Divided(cost).tape())
    # The stages of a pipeline send each other parts of the positions.
    given = tuple(_position_part(one, parts) if len(one.shape) == 3 else one for one in cost.batch.tensors)
    buffers = tuple(_position_part(one, parts) for one in cost.buffers)
    sent = tuple(one.cut(parts) if one.collective == "send" else one for one in cost.sent)
    sums = [
        Communication("all_reduce", _AXIS, one.nbytes, 1, "gradients of norms", one.dtype)
        for name, one in cost.pieces.items()
        if name.rpartition(".")[0].endswith(_NORMS)
    ]
    norms = Communication("all_reduce", _AXIS, cost.reported_norm_bytes, 1, "the activation norms", "float32")
    batch = replace(cost.batch, tensors=given)
    return replace(cost, tape=tape, batch=batch, buffers=buffers, sent=sent).sending(*sums, norms)


def _position_part(tensor: Tensor, parts: int) -> Tensor:
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
            outputs=(_position_part(whole, self.parts),),
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
        yield operation.making(lambda one: _position_part(one, self.parts))

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
