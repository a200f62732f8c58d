"""`Cost`: one optimizer step as a ledger, which the `predict` of each optimization rewrites.

It mirrors the training step's seams: the forward's operations, what is held throughout, how often the forward runs,
which modules run twice, and what the update needs. `cost.timeline` turns it into bytes by instant. Where a step is
divided over a mesh, the ledger is that of one rank: its operations, its pieces, and what it hands to collectives.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from assay.config import Run
from assay.config.mesh import ONE_DEVICE, Mesh
from assay.cost.collectives import Communication
from assay.cost.gpt import CPU, CUDA, Forward, Kernels
from assay.cost.groups import Group
from assay.cost.on_host import OnHost
from assay.cost.schedules import Action, Schedule
from assay.cost.tape import Operation, Tape, replace_site
from assay.cost.tensors import Tensor
from assay.cost.updates import AdamW, Instant, UpdateRule


@dataclass(frozen=True)
class Cost:
    """The ledger of one device's share of one optimizer step."""

    tape: Tape
    """One micro-batch's forward pass."""
    parameters: dict[str, Tensor]
    """As operations read them."""
    pieces: dict[str, Tensor]
    """What lies here between steps of each parameter, and of its gradient from backward to the update."""
    tables: tuple[Tensor, ...]
    """What is always on the device, and is neither learned nor part of a batch."""
    batch: tuple[Tensor, ...]
    """Token ids and targets as they come."""
    rule: UpdateRule
    """What the optimizer keeps and makes."""
    optimized: dict[str, Tensor] | None = None
    """What the optimizer updates of each parameter. None: `pieces`."""
    after_update: tuple[Instant, ...] = ()
    """What follows when the optimizer is through."""
    kernels: Kernels = CPU
    blocks: int = 0
    """In the whole model."""
    micro_batches: int = 1
    recomputed: tuple[str, ...] = ()
    """Modules that keep only their input and run again in backward."""
    kept_results: frozenset[str] = frozenset()
    """Kinds of operations of which such modules keep the results, too, so that they run once."""
    noise_bytes: int = 0
    """Of the generator's state that each of them keeps beside its input, to draw the same noise again."""
    updates_in_backward: bool = False
    """Whether each parameter is updated, and its gradient freed, as soon as the gradient is complete."""
    handed_together: tuple[str, ...] = ()
    """Modules that hand over their weights' gradients when all of their backward is through."""
    replayed: bool = False
    """Whether forward and backward are a graph, which keeps its memory until the next step."""
    mesh: Mesh = ONE_DEVICE
    rank: int = 0
    """Whose ledger this is."""
    groups: tuple[Group, ...] = ()
    """Weights that are gathered for their module only."""
    stages: tuple[tuple[str, ...], ...] = ()
    """Modules of each pipeline stage on this rank. None: everything is one."""
    schedule: Schedule | None = None
    """Of a pipeline's ranks, where micro-batches do not simply follow each other."""
    sequence_parts: int = 1
    """Of what lies between pairs of split matrices, one on each rank of tp; 1: every rank of tp has it whole."""
    padding_bytes: int = 0
    """What the storage of all pieces takes beside them."""
    exchanged: tuple[str, ...] = ()
    """Weights whose gradients the ends of a pipeline add."""
    sent_stays: bool = False
    """Whether what was sent to another stage stays until the step ends."""
    buffers: tuple[Tensor, ...] = ()
    """What lies on the device between steps to receive into, or was received for the next one."""
    summed_over: tuple[str, ...] = ()
    """Axes over which what lies here of each gradient is summed when a step's last backward is over."""
    owned: tuple[str, ...] = ()
    """Weights that the ranks which share a batch have divided among them: neither replicated nor sharded."""
    picked: tuple[Tensor, ...] = ()
    """Parts of them that a micro-batch reads in their place, under their names."""
    waiting_batches: int = 0
    """Batches that lie ready in the host's memory for later steps, outside of torch's allocator."""
    sent: tuple[Communication, ...] = ()
    """What this rank hands to collectives in a step, beside what operations and groups do: `cost.work` has all."""

    @property
    def place(self) -> Mapping[str, int]:
        """The rank's index along each axis."""
        return self.mesh.at(self.rank)

    @property
    def order(self) -> tuple[Action, ...]:
        """Forwards and backwards of this rank's stages; empty without a pipeline."""
        return () if self.schedule is None else self.schedule.orders[self.place["pp"]]

    @property
    def block_sites(self) -> tuple[str, ...]:
        """The blocks on this device, in order."""
        sites = (operation.site.split(".") for operation in self.tape)
        return tuple(dict.fromkeys(f"blocks.{parts[1]}" for parts in sites if parts[0] == "blocks"))

    @property
    def reported_norm_bytes(self) -> int:
        """Of the activation norms of the first and the last block, be they one."""
        return 4 * 2

    @property
    def reported_bytes(self) -> int:
        """Of those and the loss, which a step sums over its ranks."""
        return 4 + self.reported_norm_bytes

    def share(self, axis: str) -> Self:
        """The ledger of one of the ranks along an axis that divides the batch."""
        one = self.part(self.mesh.degree(axis))
        return replace(one, tape=tuple(each for operation in one.tape for each in operation.shared(axis)))

    def part(self, parts: int) -> Self:
        """The ledger of a step that has only one of `parts` equal parts of the batch."""
        batch = tuple(replace(one, shape=(one.shape[0] // parts, *one.shape[1:])) for one in self.batch)
        return replace(
            self,
            tape=tuple(operation.cut(parts) for operation in self.tape),
            batch=batch,
            picked=tuple(one.cut(parts) for one in self.picked),
            buffers=tuple(one.cut(parts) for one in self.buffers),
            sent=tuple(one.cut(parts) if one.collective == "send" else one for one in self.sent),
        )

    def holding(self, pieces: dict[str, Tensor], padding_bytes: int = 0) -> Self:
        """The ledger when this is all that lies here of the parameters, and the optimizer sees no more either."""
        return replace(self, pieces=pieces, padding_bytes=padding_bytes)

    def reporting(self, axis: str) -> Self:
        """The ledger when a step's loss and activation norms are summed over an axis."""
        return self.sending(
            Communication("all_reduce", axis, self.reported_bytes, 1, "the loss and activation norms", "float32")
        )

    def measuring_norm(self, axis: str, times: int = 1) -> Self:
        """The ledger when the gradients' squares are summed over an axis, in so many sums of one number."""
        return self.sending(Communication("all_reduce", axis, 4, times, "the gradient norm", "float32"))

    def sending(self, *communications: Communication) -> Self:
        """The ledger with more handed to collectives."""
        return replace(self, sent=(*self.sent, *communications))

    def recomputing(self, sites: Iterable[str], *, noise: bool) -> Self:
        """The ledger when these modules run again in backward, and whether they draw noise."""
        kept = self.kernels.generator_bytes if noise else 0
        return replace(self, recomputed=(*self.recomputed, *sites), noise_bytes=kept)

    def rewrite(self, inside: Callable[[str], bool], change: Callable[[Tape], Iterable[Operation]]) -> Self:
        """The ledger with each run of operations at a site that satisfies `inside` exchanged."""
        return replace(self, tape=replace_site(self.tape, inside, lambda run: tuple(change(run))))

    def with_tables_read(self) -> Self:
        """Without the tables that nothing reads: the modules that would have made them are not there."""
        read = {name for operation in self.tape for name in operation.inputs}
        return replace(self, tables=tuple(one for one in self.tables if one.name in read))

    def cut(self, micro_batches: int) -> Self:
        """The ledger when the same batch goes through in equal parts, one after the other."""
        tape = tuple(operation.cut(micro_batches) for operation in self.tape)
        picked = tuple(one.cut(micro_batches) for one in self.picked)
        return replace(self, tape=tape, picked=picked, micro_batches=self.micro_batches * micro_batches)

    @property
    def values(self) -> dict[str, Tensor]:
        """Every tensor by name: held ones and those that operations make."""
        held = {**self.parameters, **{tensor.name: tensor for tensor in (*self.tables, *self.batch, *self.picked)}}
        made = (tensor for operation in self.tape for tensor in (*operation.outputs, *operation.extras))
        return held | {tensor.name: tensor for tensor in made}

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the weights that lie here."""
        return sum(tensor.nbytes for tensor in self.pieces.values()) + self.padding_bytes

    @property
    def updated(self) -> dict[str, Tensor]:
        """What the optimizer sees."""
        return self.pieces if self.optimized is None else self.optimized

    @property
    def optimizer_state(self) -> tuple[Tensor, ...]:
        """What the optimizer keeps between steps."""
        return self.rule.state(self.updated)

    @property
    def update(self) -> tuple[Instant, ...]:
        """The moments of the update that follows backward."""
        if self.rests_on_host:
            return OnHost().instants(self.updated)
        if self.updates_in_backward:
            return ()
        return (*self.norms, *self.rule.instants(self.updated), *self.after_update)

    @property
    def norms(self) -> tuple[Instant, ...]:
        """The wide copies that a CPU makes of narrow gradients, one after the other, to measure them."""
        if self.kernels.softmax_autocast:
            return ()
        narrow = (one for one in self.pieces.values() if one.dtype in ("bfloat16", "float16"))
        return tuple(Instant("aten._foreach_norm", one.name, one.cast("float32").nbytes) for one in narrow)

    @property
    def gradient_bytes(self) -> int:
        """Of the gradients that wait for the update when backward has ended."""
        return 0 if self.updates_in_backward else sum(tensor.nbytes for tensor in self.pieces.values())

    @property
    def optimizer_state_bytes(self) -> int:
        """Bytes that the optimizer keeps between steps."""
        return sum(tensor.nbytes for tensor in self.optimizer_state)

    @property
    def batch_bytes(self) -> int:
        """Bytes of the token ids and targets of this rank's share of a batch."""
        return sum(tensor.nbytes for tensor in self.batch)

    @property
    def rests_on_host(self) -> bool:
        """Whether what this rank keeps between steps of weights, and their optimizer's state, is the host's."""
        return any(group.on_host for group in self.groups)

    @property
    def held_bytes(self) -> int:
        """Bytes on the device before a step begins: weights, state, tables and buffers; gradients are cleared."""
        lasting = sum(tensor.nbytes for tensor in (*self.tables, *self.buffers))
        return lasting if self.rests_on_host else self.parameter_bytes + self.optimizer_state_bytes + lasting


def baseline(run: Run, device: str = "cpu") -> Cost:
    """The ledger with every optimization off: hand-coded attention, plain AdamW, one micro-batch."""
    kernels = CUDA if device == "cuda" else CPU
    forward = Forward(run.model, run.training.batch_size, kernels)
    tape = forward.tape()
    learned = forward.parameters
    return Cost(
        tape=tape,
        parameters=learned,
        pieces=learned,
        tables=tuple(forward.tables.values()),
        batch=tuple(forward.batch.values()),
        rule=AdamW(),
        kernels=kernels,
        blocks=run.model.n_layer,
    )
