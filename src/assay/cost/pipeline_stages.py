"""A decoder cut into pipeline stages, as arithmetic: the blocks of each rank, their order, and its sends.

A rank that owns several stages has them a loop apart (stage i on rank i mod p, arXiv:2104.04473). The V-shaped schedule
has them in a vee (arXiv:2401.10241), with the first and the last stage on one rank. A stage keeps its input and its
output until its backward. Torch's engine holds a buffer for each micro-batch that a rank receives. The sent gradient
lives until its stage's backward has ended.
"""

from dataclasses import dataclass, replace

from assay.config.model import EMBEDDING_WEIGHT, HEAD_WEIGHT
from assay.cost.collectives import Communication
from assay.cost.layers import Tape
from assay.cost.operation import Tensor
from assay.cost.pipeline_schedules import Schedule
from assay.cost.step_cost import Cost, Pipeline

_AXIS = "pp"


@dataclass(frozen=True)
class Split:
    """The stages of a pipeline, and the rank of each."""

    ranks: int
    per_rank: int
    vee: bool = False
    dealt: tuple[int, ...] = ()
    """Number of blocks of each stage, in the order of the data flow; empty: equally many."""

    @property
    def count(self) -> int:
        """Number of stages on all ranks."""
        return self.ranks * self.per_rank

    def of(self, rank: int) -> tuple[int, ...]:
        """The stages of a rank, in the order of the data flow."""
        if self.vee:
            return (rank, 2 * self.ranks - 1 - rank)
        return tuple(range(rank, self.count, self.ranks))

    def owner(self, stage: int) -> int:
        """The rank that owns a stage."""
        return next(rank for rank in range(self.ranks) if stage in self.of(rank))

    def blocks_of(self, stage: int, blocks: int) -> range:
        """Indices of a stage's blocks in a model of `blocks` blocks."""
        sizes = self.dealt or (blocks // self.count,) * self.count
        first = sum(sizes[:stage])
        return range(first, first + sizes[stage])

    def sites(self, stage: int, blocks: int) -> tuple[str, ...]:
        """The modules of a stage: its blocks, the embedding before the first, the head after the last."""
        inner = [f"blocks.{index}" for index in self.blocks_of(stage, blocks)]
        first, last = (["embedding"] if stage == 0 else []), (["head"] if stage == self.count - 1 else [])
        return (*first, *inner, *last)


def stage_ledger(cost: Cost, split: Split, micro_batches: int, schedule: Schedule) -> Cost:
    """The ledger of a rank that owns only its stages, and runs them in its order of the schedule."""
    owned = split.of(cost.place[_AXIS])
    stages = tuple(split.sites(stage, cost.blocks) for stage in owned)
    here = tuple(site for sites in stages for site in sites)
    cost = _with_copy(cost, split)
    tape = tuple(one for one in cost.tape if one.within(*here))
    read = {name for one in tape for name in one.inputs}
    learned = {name: tensor for name, tensor in cost.parameters.items() if name in read}
    received = tuple(one.cut(micro_batches) for one in _received(cost, tape))
    batch = replace(cost.batch, tensors=(*cost.batch.tensors, *received))
    own = replace(cost, tape=tape, parameters=learned, batch=batch).holding(learned).cut(micro_batches)
    sends, buffers = [], []
    for stage in owned:
        for neighbour, what in ((stage + 1, "activations"), (stage - 1, "their gradients")):
            if 0 <= neighbour < split.count:
                between = replace(_between(cost, micro_batches), name=f"{what}.{stage}")
                buffers += [between] * micro_batches
                if split.owner(neighbour) != cost.place[_AXIS]:
                    sends.append(Communication("send", _AXIS, between.nbytes, micro_batches, what, between.dtype))
    # Torch's schedule for several stages a rank waits for its sends at the end, and keeps the sent tensors until then.
    pipeline = Pipeline(stages, schedule, _exchanged(cost, split), sent_stays=split.per_rank > 1)
    own = replace(own, buffers=tuple(buffers), pipeline=pipeline)
    return own.sending(*sends).reporting(_AXIS).measuring_norm(_AXIS)


def _with_copy(cost: Cost, split: Split) -> Cost:
    """The ledger with two copies of a tied weight, one for each end, if one rank owns both ends."""
    if EMBEDDING_WEIGHT not in _head_reads(cost) or not {0, split.count - 1} <= set(split.of(cost.place[_AXIS])):
        return cost
    copy = replace(cost.parameters[EMBEDDING_WEIGHT], name=HEAD_WEIGHT)
    tape = tuple(one.reading({EMBEDDING_WEIGHT: HEAD_WEIGHT}) if one.within("head") else one for one in cost.tape)
    return replace(cost, tape=tape, parameters={**cost.parameters, HEAD_WEIGHT: copy})


def _head_reads(cost: Cost) -> list[str]:
    return [name for one in cost.tape if one.site.startswith("head") for name in one.inputs]


def _received(cost: Cost, tape: Tape) -> tuple[Tensor, ...]:
    """Inputs of this rank's operations that other ranks compute."""
    made = {tensor.name for one in tape for tensor in (*one.outputs, *one.extras)}
    there = made | set(cost.parameters) | {tensor.name for tensor in (*cost.tables, *cost.batch.tensors)}
    values = cost.values
    read = dict.fromkeys(name for one in tape for name in one.inputs)
    return tuple(values[name] for name in read if name not in there)


def _between(cost: Cost, micro_batches: int) -> Tensor:
    """The tensor sent from one stage to the next: a micro-batch's residual stream, in the dtype of the weights."""
    embedded = next(tensor for one in cost.tape if one.site == "embedding" for tensor in one.outputs)
    return embedded.cut(micro_batches)


def _exchanged(cost: Cost, split: Split) -> tuple[str, ...]:
    """The tied weight, on the ranks of the first and the last stage, if these are two ranks."""
    ends = {split.owner(0), split.owner(split.count - 1)}
    both = len(ends) > 1 and cost.place[_AXIS] in ends and EMBEDDING_WEIGHT in _head_reads(cost)
    return (EMBEDDING_WEIGHT,) if both else ()
