"""A decoder cut into stages, as arithmetic: which blocks a rank has, in what order it runs them, and what it sends.

Where a rank owns several stages, they lie a loop apart (stage i on rank i mod p, arXiv:2104.04473) or, for the V-shaped
schedule, in a vee (arXiv:2401.10241), which puts the first and the last stage on one rank. A stage keeps its input and
its output until its backward; torch's engine holds a buffer for each micro-batch that a rank receives, and the sent
gradient lives until its stage's backward is over.
"""

from dataclasses import dataclass, replace

from assay.cost.collectives import Communication
from assay.cost.schedules import Schedule
from assay.cost.step import Cost
from assay.cost.tape import Tape
from assay.cost.tensors import Tensor

_AXIS = "pp"
_EMBEDDED, _PROJECTED = "embedding.token.weight", "head.projection.weight"


@dataclass(frozen=True)
class Split:
    """Which stages there are, and which are on one rank."""

    ranks: int
    per_rank: int
    vee: bool = False
    dealt: tuple[int, ...] = ()
    """Blocks by stage, in the order in which data flows; empty: equally many."""

    @property
    def count(self) -> int:
        """Stages on all ranks."""
        return self.ranks * self.per_rank

    def of(self, rank: int) -> tuple[int, ...]:
        """The stages of a rank, in the order in which data flows through them."""
        if self.vee:
            return (rank, 2 * self.ranks - 1 - rank)
        return tuple(range(rank, self.count, self.ranks))

    def owner(self, stage: int) -> int:
        """The rank that has a stage."""
        return next(rank for rank in range(self.ranks) if stage in self.of(rank))

    def blocks_of(self, stage: int, blocks: int) -> range:
        """Which of so many blocks a stage has."""
        sizes = self.dealt or (blocks // self.count,) * self.count
        first = sum(sizes[:stage])
        return range(first, first + sizes[stage])

    def sites(self, stage: int, blocks: int) -> tuple[str, ...]:
        """The modules of a stage: its blocks, the embedding before the first, the head behind the last."""
        inner = [f"blocks.{index}" for index in self.blocks_of(stage, blocks)]
        first, last = (["embedding"] if stage == 0 else []), (["head"] if stage == self.count - 1 else [])
        return (*first, *inner, *last)


def staged(cost: Cost, split: Split, micro_batches: int, schedule: Schedule) -> Cost:
    """The ledger of a rank that has its stages only, and runs them in its order of the schedule."""
    owned = split.of(cost.place[_AXIS])
    stages = tuple(split.sites(stage, cost.blocks) for stage in owned)
    here = tuple(site for sites in stages for site in sites)
    cost = _with_copy(cost, split)
    tape = tuple(one for one in cost.tape if one.within(*here))
    read = {name for one in tape for name in one.inputs}
    learned = {name: tensor for name, tensor in cost.parameters.items() if name in read}
    received = tuple(one.cut(micro_batches) for one in _received(cost, tape))
    own = replace(cost, tape=tape, parameters=learned, batch=(*cost.batch, *received), stages=stages)
    own = replace(own.holding(learned).cut(micro_batches), schedule=schedule)
    sends, buffers = [], []
    for stage in owned:
        for neighbour, what in ((stage + 1, "activations"), (stage - 1, "their gradients")):
            if 0 <= neighbour < split.count:
                between = replace(_between(cost, micro_batches), name=f"{what}.{stage}")
                buffers += [between] * micro_batches
                if split.owner(neighbour) != cost.place[_AXIS]:
                    sends.append(Communication("send", _AXIS, between.nbytes, micro_batches, what, between.dtype))
    # Torch's schedule for several stages a rank waits for its sends at the end, and keeps what it sent until then.
    own = replace(own, buffers=tuple(buffers), exchanged=_exchanged(cost, split))
    return replace(own, sent_stays=split.per_rank > 1).sending(*sends).reporting(_AXIS).measuring_norm(_AXIS)


def _with_copy(cost: Cost, split: Split) -> Cost:
    """The ledger when a tied weight lies here twice: once for each end, where one rank has both."""
    if _EMBEDDED not in _head_reads(cost) or not {0, split.count - 1} <= set(split.of(cost.place[_AXIS])):
        return cost
    copy = replace(cost.parameters[_EMBEDDED], name=_PROJECTED)
    tape = tuple(one.reading({_EMBEDDED: _PROJECTED}) if one.within("head") else one for one in cost.tape)
    return replace(cost, tape=tape, parameters={**cost.parameters, _PROJECTED: copy})


def _head_reads(cost: Cost) -> list[str]:
    return [name for one in cost.tape if one.site.startswith("head") for name in one.inputs]


def _received(cost: Cost, tape: Tape) -> tuple[Tensor, ...]:
    """What operations read that none of this rank's makes, and that was not there before."""
    made = {tensor.name for one in tape for tensor in (*one.outputs, *one.extras)}
    there = made | set(cost.parameters) | {tensor.name for tensor in (*cost.tables, *cost.batch)}
    values = cost.values
    read = dict.fromkeys(name for one in tape for name in one.inputs)
    return tuple(values[name] for name in read if name not in there)


def _between(cost: Cost, micro_batches: int) -> Tensor:
    """What travels from a stage to the next: the residual stream, in the dtype of the weights."""
    embedded = next(tensor for one in cost.tape if one.site == "embedding" for tensor in one.outputs)
    return embedded.cut(micro_batches)


def _exchanged(cost: Cost, split: Split) -> tuple[str, ...]:
    """The tied weight, on the ranks of the first and the last stage, where these are two."""
    ends = {split.owner(0), split.owner(split.count - 1)}
    both = len(ends) > 1 and cost.place[_AXIS] in ends and _EMBEDDED in _head_reads(cost)
    return (_EMBEDDED,) if both else ()
