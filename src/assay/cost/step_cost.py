"""`Cost`: one optimizer step as a ledger, which the `predict` of each optimization rewrites.

It mirrors the training step: forward, the tensors that exist throughout, the batch, the way backward runs, the update,
sharding and the pipeline. `cost.simulation` turns it into bytes by instant. For a step divided over a mesh, the ledger
is that of one rank: its operations, its shards and its communications.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

from assay.config import ResolvedRun
from assay.config.mesh import ONE_DEVICE, Mesh
from assay.cost.collectives import Communication
from assay.cost.gpt_tape import Forward
from assay.cost.gpu_kernels import norm_of_one, norms_of_list
from assay.cost.kernels import CPU, Kernels
from assay.cost.layers import Tape, replace_site
from assay.cost.mixture import between_steps
from assay.cost.operation import DTYPE_BYTES, Operation, Tensor
from assay.cost.pipeline_schedules import Action, Schedule
from assay.cost.rewrites.frozen import without_gradients_of_frozen
from assay.cost.simulation.allocator import Lifetimes, lifetimes_of
from assay.cost.simulation.fsdp_groups import ShardedGroup
from assay.cost.update_rules import COUNT, AdamWUpdate, Instant, OnHost, UpdateRule


@dataclass(frozen=True)
class Batch:
    """One step's batch on the device, and batches that wait for later steps."""

    tensors: tuple[Tensor, ...]
    """Token ids and targets, `[B, T]` each, and in a pipeline the activations received from another stage."""
    picked: tuple[Tensor, ...] = ()
    """Parts of the batch that a micro-batch reads instead of the whole, under the same names."""
    waiting: int = 0
    """Batches ready in the host's memory for later steps, outside torch's allocator."""

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors of one step."""
        return sum(tensor.nbytes for tensor in self.tensors)

    def part(self, parts: int) -> Self:
        """The batch of a step that has one of `parts` equal parts of the sequences."""
        shared = tuple(replace(one, shape=(one.shape[0] // parts, *one.shape[1:])) for one in self.tensors)
        return replace(self.cut(parts), tensors=shared)

    def cut(self, micro_batches: int) -> Self:
        """The batch, read in `micro_batches` equal parts."""
        return replace(self, picked=tuple(one.cut(micro_batches) for one in self.picked))


@dataclass(frozen=True)
class Backward:
    """Modules whose backward differs from autograd's default."""

    recomputed: tuple[str, ...] = ()
    """Modules that save only their inputs and are recomputed in backward."""
    kept_results: frozenset[str] = frozenset()
    """Kinds of operations whose results recomputed modules save too, so that these operations run once."""
    noise_bytes: int = 0
    """Bytes of generator state that each recomputed module saves, to draw the same noise in recompute."""
    frozen: frozenset[str] = frozenset()
    """Names of the parameters that are not trained: they have no gradient, and no optimizer state."""
    packed: Mapping[str, Tensor] = field(default_factory=dict)
    """Frozen weights that are kept in fewer bits, by name, in the shape and dtype of their numbers."""
    accumulated_together: tuple[str, ...] = ()
    """Modules whose weight gradients are all accumulated when the module's backward has finished."""

    def recomputing(self, sites: Iterable[str], noise_bytes: int) -> Self:
        """These rules with further modules recomputed."""
        return replace(self, recomputed=(*self.recomputed, *sites), noise_bytes=noise_bytes)


@dataclass(frozen=True)
class OptimizerStep:
    """The optimizer, and when it updates which shards."""

    rule: UpdateRule = field(default_factory=AdamWUpdate)
    """The optimizer: its state, and the temporaries of its update."""
    shards: dict[str, Tensor] | None = None
    """Shard of each parameter that the optimizer updates; None: the ledger's `pieces`."""
    after: tuple[Instant, ...] = ()
    """Instants that follow the update."""
    in_backward: bool = False
    """True if each parameter is updated, and its gradient freed, as soon as the gradient is complete."""


@dataclass(frozen=True)
class Sharding:
    """Weights that this rank does not hold whole between steps."""

    groups: tuple[ShardedGroup, ...] = ()
    """Weights that are gathered only while their module runs."""
    owned: tuple[str, ...] = ()
    """Weights divided among the ranks that share a batch: neither replicated nor sharded."""
    padding_bytes: int = 0
    """Bytes of padding in the storage of all shards."""

    @property
    def on_host(self) -> bool:
        """True if weights and optimizer state are stored in the host's memory between steps."""
        return any(group.on_host for group in self.groups)


@dataclass(frozen=True)
class Pipeline:
    """This rank's stages of a pipeline."""

    stages: tuple[tuple[str, ...], ...] = ()
    """Modules of each pipeline stage on this rank; empty: a single stage with all modules."""
    schedule: Schedule | None = None
    """Schedule of the pipeline; None: micro-batches run one after the other."""
    exchanged: tuple[str, ...] = ()
    """Weights whose gradients are summed over the first and the last pipeline stage."""
    sent_stays: bool = False
    """True if tensors sent to another stage stay allocated until the step ends."""


_UNREAD = "unread figures"


@dataclass(frozen=True)
class Cost:
    """The ledger of one device's share of one optimizer step."""

    tape: Tape
    """Forward pass of one micro-batch."""
    parameters: dict[str, Tensor]
    """Parameters by name, in the shape and dtype in which operations read them."""
    pieces: dict[str, Tensor]
    """This rank's shard of each parameter between steps. From backward to the update, its gradient has the same shape
    and dtype."""
    tables: tuple[Tensor, ...]
    """Tensors on the device throughout, such as the mask: neither learned nor read with a batch."""
    batch: Batch
    optimizer: OptimizerStep = field(default_factory=OptimizerStep)
    backward: Backward = field(default_factory=Backward)
    sharding: Sharding = field(default_factory=Sharding)
    pipeline: Pipeline = field(default_factory=Pipeline)
    kernels: Kernels = CPU
    blocks: int = 0
    """Number of blocks in the whole model."""
    micro_batches: int = 1
    replayed: bool = False
    """True if forward and backward are replayed as a captured graph, whose memory stays until the next step."""
    copied_beside: frozenset[str] = frozenset()
    """Storages that another stream reads. The allocator has them back when that stream is done, for which no host waits
    before the step ends."""
    mesh: Mesh = ONE_DEVICE
    rank: int = 0
    """Rank whose ledger this is."""
    sequence_parts: int = 1
    """Parts into which positions are divided outside the pairs of split matrices, one a tp rank; 1: undivided."""
    buffers: tuple[Tensor, ...] = ()
    """Further tensors on the device between steps, such as receive buffers and batches fetched ahead."""
    summed_over: tuple[str, ...] = ()
    """Axes over which this rank's gradients are summed after the last backward of a step."""
    sent: tuple[Communication, ...] = ()
    """Communications of this rank in a step, without those of operations and groups; `cost.work` lists all."""

    def __post_init__(self) -> None:
        """Keep the tape of frozen weights as autograd runs it, whichever technique wrote its operations."""
        if self.backward.frozen:
            trained = self.parameters.keys() - self.backward.frozen
            object.__setattr__(self, "tape", without_gradients_of_frozen(self.tape, trained))

    @property
    def place(self) -> Mapping[str, int]:
        """The rank's index along each axis."""
        return self.mesh.at(self.rank)

    @property
    def order(self) -> tuple[Action, ...]:
        """Forwards and backwards of this rank's stages, in order; empty without a pipeline."""
        schedule = self.pipeline.schedule
        return () if schedule is None else schedule.orders[self.place["pp"]]

    @property
    def block_sites(self) -> tuple[str, ...]:
        """Sites of the blocks on this rank, in order."""
        sites = (operation.site.split(".") for operation in self.tape)
        return tuple(dict.fromkeys(f"blocks.{parts[1]}" for parts in sites if parts[0] == "blocks"))

    @property
    def reported_norm_bytes(self) -> int:
        """Bytes of the activation norms of the first and the last block: two float32 numbers, even of one block."""
        return 4 * 2

    @property
    def reported_bytes(self) -> int:
        """Bytes of the loss and the activation norms, which a step sums over its ranks."""
        return 4 + self.reported_norm_bytes

    def share(self, axis: str) -> Self:
        """The ledger of one rank along an axis that divides the batch."""
        one = self.part(self.mesh.degree(axis))
        return replace(one, tape=tuple(each for operation in one.tape for each in operation.shared(axis)))

    def part(self, parts: int) -> Self:
        """The ledger of a step that has one of `parts` equal parts of the batch."""
        return replace(
            self,
            tape=tuple(operation.cut(parts) for operation in self.tape),
            tables=tuple(one.cut(parts) for one in self.tables),
            batch=self.batch.part(parts),
            buffers=tuple(one.cut(parts) for one in self.buffers),
            sent=tuple(one.cut(parts) if one.collective == "send" else one for one in self.sent),
        )

    def holding(self, pieces: dict[str, Tensor], padding_bytes: int = 0) -> Self:
        """The ledger with `pieces` as this rank's shards, which the optimizer updates if it has no other shards."""
        return replace(self, pieces=pieces, sharding=replace(self.sharding, padding_bytes=padding_bytes))

    def updated_by(self, rule: UpdateRule) -> Self:
        """The ledger with another optimizer."""
        return replace(self, optimizer=replace(self.optimizer, rule=rule))

    def reporting(self, axis: str) -> Self:
        """The ledger with the loss and activation norms of a step summed over an axis."""
        return self.sending(
            Communication("all_reduce", axis, self.reported_bytes, 1, "the loss and activation norms", "float32")
        )

    def measuring_norm(self, axis: str, times: int = 1) -> Self:
        """The ledger with the gradients' squares summed over an axis, in `times` all-reduces of one number."""
        return self.sending(Communication("all_reduce", axis, 4, times, "the gradient norm", "float32"))

    def reading_every(self, steps: int) -> Self:
        """The ledger of steps whose figures are read together: the loss, the gradient norm and two blocks' norms.

        Those of all steps but the last are held until the read.
        """
        others = tuple(one for one in self.buffers if one.name != _UNREAD)
        unread = Tensor(_UNREAD, (steps - 1, 4), batched=False)
        return replace(self, buffers=(*others, unread) if steps > 1 else others)

    @property
    def read_every(self) -> int:
        """Number of steps whose figures are read together."""
        return next((one.shape[0] + 1 for one in self.buffers if one.name == _UNREAD), 1)

    def sending(self, *communications: Communication) -> Self:
        """The ledger with further communications."""
        return replace(self, sent=(*self.sent, *communications))

    def recomputing(self, sites: Iterable[str], *, noise: bool) -> Self:
        """The ledger with these modules recomputed in backward; `noise` is true if they draw random numbers."""
        return replace(self, backward=self.backward.recomputing(sites, self.kernels.generator_bytes if noise else 0))

    def rewrite(self, inside: Callable[[str], bool], change: Callable[[Tape], Iterable[Operation]]) -> Self:
        """The ledger in which `change` rewrites each run of operations at a site that satisfies `inside`."""
        return replace(self, tape=replace_site(self.tape, inside, lambda run: tuple(change(run))))

    def with_tables_read(self) -> Self:
        """The ledger without the tables that no operation reads, because the modules that make them are not built."""
        read = {name for operation in self.tape for name in operation.inputs}
        return replace(self, tables=tuple(one for one in self.tables if one.name in read))

    def cut(self, micro_batches: int) -> Self:
        """The ledger with the same batch in `micro_batches` equal parts, one after the other."""
        tape = tuple(operation.cut(micro_batches) for operation in self.tape)
        tables = tuple(one.cut(micro_batches) for one in self.tables)
        batch, parts = self.batch.cut(micro_batches), self.micro_batches * micro_batches
        return replace(self, tape=tape, tables=tables, batch=batch, micro_batches=parts)

    @cached_property
    def values(self) -> dict[str, Tensor]:
        """Every tensor by name: parameters, tables, the batch, and the results of operations; not to be changed."""
        given = (*self.tables, *self.batch.tensors, *self.batch.picked)
        held = {**self.parameters, **{tensor.name: tensor for tensor in given}}
        made = (tensor for operation in self.tape for tensor in (*operation.outputs, *operation.extras))
        return held | {tensor.name: tensor for tensor in made}

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Bytes of every tensor of `values`; not to be changed."""
        return {name: tensor.nbytes for name, tensor in self.values.items()}

    @cached_property
    def lifetimes(self) -> Lifetimes:
        """Lifetimes of the tape's storages, and its recomputed segments; computed once."""
        tables = [tensor.name for tensor in self.tables]
        return lifetimes_of(self.tape, self.values, self.parameters, tables, self.backward)

    @cached_property
    def parameter_bytes(self) -> int:
        """Bytes of this rank's weights, padding included."""
        return sum(tensor.nbytes for tensor in self.pieces.values()) + self.sharding.padding_bytes

    @cached_property
    def trained(self) -> dict[str, Tensor]:
        """This rank's shards of the parameters that have a gradient."""
        frozen = self.backward.frozen
        return {name: one for name, one in self.pieces.items() if name not in frozen} if frozen else self.pieces

    @property
    def updated(self) -> dict[str, Tensor]:
        """Shards that the optimizer updates."""
        return self.trained if self.optimizer.shards is None else self.optimizer.shards

    @property
    def spared_bytes(self) -> int:
        """Bytes of the gradients and of the optimizer state that frozen weights would have."""
        whole = {**self.pieces, **self.backward.packed}
        frozen = {name: one for name, one in whole.items() if name in self.backward.frozen}
        return sum(one.nbytes for one in (*frozen.values(), *self.optimizer.rule.state(frozen)))

    @cached_property
    def optimizer_state(self) -> tuple[Tensor, ...]:
        """Tensors that the optimizer keeps between steps on the device."""
        state = self.optimizer.rule.state(self.updated)
        if self.kernels.gpu is None or self.optimizer.rule.counts_on_gpu:
            return state
        return tuple([one for one in state if one is not COUNT])

    @cached_property
    def update(self) -> tuple[Instant, ...]:
        """Instants of the update that follows backward."""
        if self.sharding.on_host:
            return OnHost().instants(self.updated)
        if self.optimizer.in_backward:
            return ()
        return (*self.norms, *self.instants_of(self.updated), *self.optimizer.after)

    def instants_of(self, pieces: Mapping[str, Tensor]) -> tuple[Instant, ...]:
        """Instants of the update of some shards."""
        rule, gpu = self.optimizer.rule, self.kernels.gpu
        return rule.instants(pieces) if gpu is None else rule.instants_on(gpu, pieces)

    @property
    def norms(self) -> tuple[Instant, ...]:
        """The norm of each gradient, whose numbers are then stacked; the norm of these is a figure of the step."""
        pieces, number = self.trained.values(), DTYPE_BYTES["float32"]
        stacked = Instant("aten.stack", "", 2 * len(pieces) * number, kept_bytes=number)
        if self.kernels.gpu is not None:
            chunks = norms_of_list(one.elements for one in pieces)
            return (Instant("aten._foreach_norm", "", len(pieces) * number + chunks), stacked)
        each = (
            Instant("aten._foreach_norm", one.name, place * number + self._copied_for_norm(one))
            for place, one in enumerate(pieces, start=1)
        )
        return (*each, stacked)

    def norm_of(self, gradient: Tensor) -> Instant:
        """The norm of a gradient that is used and freed within backward; its number waits for the others."""
        number = DTYPE_BYTES["float32"]
        gpu = self.kernels.gpu
        inside = self._copied_for_norm(gradient) if gpu is None else norm_of_one(gradient.elements, gpu)
        return Instant("aten.linalg_vector_norm", gradient.name, number + inside, kept_bytes=number)

    def _copied_for_norm(self, gradient: Tensor) -> int:
        """Bytes of the float32 copy that a CPU makes of a 16-bit gradient."""
        return gradient.cast("float32").nbytes if gradient.dtype in ("bfloat16", "float16") else 0

    @cached_property
    def gradient_bytes(self) -> int:
        """Bytes of the gradients that wait for the update when backward has ended."""
        return 0 if self.optimizer.in_backward else sum(tensor.nbytes for tensor in self.trained.values())

    @cached_property
    def optimizer_state_bytes(self) -> int:
        """Bytes that the optimizer keeps between steps."""
        return sum(tensor.nbytes for tensor in self.optimizer_state)

    @cached_property
    def held_bytes(self) -> int:
        """Bytes on the device before a step: weights, optimizer state, tables and buffers; gradients are cleared."""
        lasting = sum(tensor.nbytes for tensor in (*self.tables, *self.buffers))
        return lasting if self.sharding.on_host else lasting + self.parameter_bytes + self.optimizer_state_bytes

    @property
    def held(self) -> tuple[Tensor, ...]:
        """Tensors on the device before a step, without the padding of shards."""
        return self.held_at_first if self.sharding.on_host else (*self.held_at_first, *self.optimizer_state)

    @property
    def held_at_first(self) -> tuple[Tensor, ...]:
        """Tensors on the device before the first step, which makes the optimizer state."""
        weights = () if self.sharding.on_host else self.pieces.values()
        return (*weights, *self.tables, *self.buffers)


def baseline(run: ResolvedRun, kernels: Kernels = CPU) -> Cost:
    """The ledger with every optimization off: hand-coded attention, plain AdamW, one micro-batch."""
    forward = Forward(run.model, run.training.batch_size, kernels)
    cost = Cost(
        tape=forward.tape(),
        parameters=forward.parameters,
        pieces=forward.parameters,
        tables=tuple(forward.tables.values()),
        batch=Batch(tuple(forward.batch.values())),
        kernels=kernels,
        blocks=run.model.n_layer,
        buffers=between_steps(run.model),
    )
    device = "cpu" if kernels.gpu is None else "cuda"
    return cost.reading_every(min(run.read_every(device), run.training.steps))
