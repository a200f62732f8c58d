"""What one instrumented step really did, as plain data: no tensor, no torch, so that proofs are cheap to read and keep.

A trace is taken of the very program that is timed, in a step of its own that is never timed. It is what `verify` reads:
a claim about the step has to be visible here, or it is not proven.
"""

from collections.abc import Mapping
from typing import Literal

from assay.config.base import Frozen
from assay.step.float8 import Float8Product
from assay.step.masks import Masks
from assay.step.scaling import Scaling
from assay.step.updated import Group, Updated

Phase = Literal["forward", "backward", "recompute", "update"]
"""`recompute`: operations of a forward that a checkpoint repeats during backward."""

OperationClass = Literal["contraction", "normalization", "elementwise", "movement", "communication"]
"""The three classes of arXiv:2007.00072 (tensor contractions, statistical normalizations, element-wise operators), and
data movement and communication beside them."""

ANOTHER_PROCESS = "another process"
"""Who made a batch ready: one that does not compute."""
SIDE_STREAM = "a side stream"
"""Who made a batch ready: a copy to the device that ran beside a step."""
DOCUMENTS = "documents"
"""Where a batch came from: text that was tokenized for it."""


class Operation(Frozen):
    """All executions of one operator that agree in phase and dtype."""

    name: str
    """torch's name without the namespace's default overload, for instance `aten.mm`."""
    phase: Phase
    operation_class: OperationClass
    dtype: str
    """The dtype it computes in: that of its first floating-point tensor argument, or of its result; `tf32` for a
    contraction of float32 that is allowed it."""
    count: int
    flops: int
    """Multiply-adds count two; only contractions have them."""
    bytes: int
    """Sum of the sizes of tensor arguments and results: what it must at least move. In compiled code that is known of
    contractions only, the others being fused."""
    largest_bytes: int = 0
    """Size of the largest tensor that one execution returned."""
    part_of: str = ""
    """In compiled code: the operator that was taken apart into this one and others."""


class Communication(Frozen):
    """All calls of one collective by this rank that agree in mesh axis and phase."""

    collective: str
    """The field's name: all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, send."""
    axis: str
    """The mesh axis whose ranks it joins, or `world`."""
    phase: Phase
    count: int
    payload_bytes: int
    """Of the whole that it gathers, reduces or sends, as handed over at the call; a backend may carry it otherwise."""
    dtype: str = ""
    """Of what is handed over; empty in records of earlier versions."""


class CompiledGraph(Frozen):
    """One graph that a compiler captured, as this step used it."""

    backward: bool
    calls: int
    """How often the step ran the code made of it."""
    operations: int
    """In the graph, views left out."""
    contractions: int
    """Of those, tensor contractions."""
    kernels: int
    """Fused loops generated for it."""


class BlockForward(Frozen):
    """All forwards of one block in a step, of every micro-batch; what ran again in backward is not among them."""

    block: int
    contractions: int
    flops: int
    last_contractions: int
    """One of each forward: where backward does not need its result, a checkpoint does not repeat it."""
    last_flops: int
    normalizations: int


class Held(Frozen):
    """One parameter of this rank."""

    name: str
    held_bytes: int
    """Of this rank's piece."""
    whole_bytes: int
    """Of all ranks' pieces together."""
    divided_over: tuple[str, ...] = ()
    """Mesh axes whose ranks hold unlike pieces."""
    dimensions: Mapping[str, int] = {}
    """Dimension along which each of these axes divides it."""
    shape: tuple[int, ...] = ()
    """Shape of this rank's piece."""
    whole_shape: tuple[int, ...] = ()
    dtype: str = "float32"


class Trace(Frozen):
    """One optimizer step of one rank."""

    operations: tuple[Operation, ...]
    loss: float
    saved_bytes: Mapping[str, int]
    """Bytes of distinct storages saved for backward, by category; parameters and their aliases left out.
    Summed over micro-batches as the largest one: they do not live together."""
    offloaded_saved_bytes: int = 0
    """Moved to another device, to be kept for backward there: each saving by itself, over all micro-batches."""
    forwards: int
    """How often the loss was computed: the number of micro-batches."""
    targets: int
    """Targets in the whole step."""
    sequences: int = 0
    """Of the batch, those that this rank asked for."""
    prepared: Mapping[str, int] = {}
    """Sequences that were not simply read from prepared tokens while this step ran, by who or what made them."""
    makers: Mapping[str, int] = {}
    """How many they are who make batches ready for this rank, by who or what."""
    data_seconds: float = 0.0
    """For which the host waited until the batch was made."""
    parameter_bytes: int
    offloaded_bytes: int = 0
    """Of parameters, those that lie in the host's memory while the step runs on another device."""
    parameters: tuple[Held, ...] = ()
    """Those that this rank holds, whole or in part."""
    gradient_bytes: int
    """Of parameters' gradients that lived when backward had ended."""
    gradients_together_bytes: int = 0
    """Most that lived at once when an optimizer began to step."""
    updates_in_backward: int = 0
    """Steps of an optimizer while backward still ran."""
    optimizer_state_bytes: int
    offloaded_state_bytes: int = 0
    """Of the optimizer's state, what lies in the host's memory while the step runs on another device."""
    whole_state_bytes: Mapping[str, int] = {}
    """Of all ranks' pieces of the same state together, by dtype."""
    updates: tuple[Updated, ...] = ()
    """Parameters that the optimizer was given."""
    groups: tuple[Group, ...] = ()
    """Parameter groups of the optimizer."""
    read_every: int = 1
    """Steps whose figures the program reads together."""
    masks: Masks = Masks()
    float8: tuple[Float8Product, ...] = ()
    recomputed_blocks: tuple[int, ...] = ()
    """Blocks whose weights backward read in recomputed operators; nothing where weights are gathered or compiled."""
    scaling: Scaling = Scaling()
    schedule: tuple[str, ...] = ()
    """What a pipeline's rank ran, in order: `F0.1` is stage 0's forward of micro-batch 1; B, I and W are backwards."""
    learning_rate: float | None = None
    """Learning rate that the schedule has for this step."""
    ranks: Mapping[str, int] = {}
    """Along each axis of the mesh; empty on one device."""
    place: Mapping[str, int] = {}
    """Index of this rank along each axis of the mesh."""
    shared_parameters: tuple[tuple[str, ...], ...]
    """Names that are one storage."""
    whole_parameter_bytes: int = 0
    """Of all ranks' pieces of this rank's parameters together: what they would take on one device."""
    communications: tuple[Communication, ...] = ()
    block_forwards: tuple[BlockForward, ...] = ()
    compiled: tuple[CompiledGraph, ...] = ()
    """Graphs whose code this step ran; their operations are among `operations`."""
    graph_breaks: int = 0
    """Places at which compilation gave a forward back to Python, since the process began."""
    training_graphs: int = 0
    """Graphs captured for training since the process began, in both directions; those of evaluations left out."""
    graph_replays: int = 0
    """Micro-batches whose forward and backward the device replayed."""
    captured_contractions: int = 0
    """Tensor contractions in what was replayed; they are among `operations`."""
    synchronizations: Mapping[str, int]
    """Times by phase that the host waited for the device (`item`, `nonzero`, a blocking copy); `figures`: for those of
    the step. An optimizer's numbers of updates lie on the host whatever the device, and nobody waits for them."""

    @property
    def blocks(self) -> tuple[int, ...]:
        """The blocks of which this rank holds weights."""
        names = (one.name.split(".") for one in self.parameters)
        return tuple(sorted({int(parts[1]) for parts in names if parts[0] == "blocks"}))

    def held(self, fragment: str) -> tuple[int, int]:
        """(bytes on this rank, bytes on all ranks) of the parameters whose name contains `fragment`."""
        named = [one for one in self.parameters if fragment in one.name]
        return sum(one.held_bytes for one in named), sum(one.whole_bytes for one in named)

    @property
    def whole_optimizer_state_bytes(self) -> int:
        """Of all ranks' pieces of the optimizer's state together: what it would take on one device."""
        return sum(self.whole_state_bytes.values())

    @property
    def saved_total_bytes(self) -> int:
        """Everything kept for backward at the end of the largest micro-batch's forward."""
        return sum(self.saved_bytes.values())

    def compiled_calls(self, *, backward: bool) -> int:
        """Calls of compiled code in one direction."""
        return sum(graph.calls for graph in self.compiled if graph.backward is backward)

    def communicated(
        self, *fragments: str, axis: str | None = None, phase: Phase | None = None, dtype: str | None = None
    ) -> int:
        """Payload bytes of the collectives whose name contains any of `fragments`."""
        return sum(
            one.payload_bytes
            for one in self.communications
            if any(fragment in one.collective for fragment in fragments)
            and axis in (None, one.axis)
            and phase in (None, one.phase)
            and dtype in (None, one.dtype)
        )

    def calls(self, collective: str, axis: str, phase: Phase) -> int:
        """Calls of one collective along one axis in one phase."""
        return sum(
            one.count
            for one in self.communications
            if (one.collective, one.axis, one.phase) == (collective, axis, phase)
        )

    def count(self, *fragments: str, phase: Phase | None = None, dtype: str | None = None) -> int:
        """Executions whose name contains any of `fragments`, in one phase and dtype or in all."""
        return sum(
            operation.count
            for operation in self.operations
            if any(fragment in operation.name for fragment in fragments)
            and phase in (None, operation.phase)
            and dtype in (None, operation.dtype)
        )

    def largest_bytes(self, *fragments: str, phase: Phase | None = None) -> int:
        """Size of the largest tensor that an execution returned whose name contains any of `fragments`; 0: none did.

        In compiled code also of those that such an operator was taken apart into.
        """
        return max(
            (
                operation.largest_bytes
                for operation in self.operations
                if any(fragment in f"{operation.name} {operation.part_of}" for fragment in fragments)
                and phase in (None, operation.phase)
            ),
            default=0,
        )

    def contractions(self, phase: Phase | None = None, dtype: str | None = None) -> int:
        """The model's tensor contractions (matrix products and fused attention), in one phase and dtype or in all.

        Those of the update are an optimizer's own, and counted where that phase is asked for.
        """
        return sum(
            operation.count
            for operation in self.operations
            if operation.operation_class == "contraction"
            and (phase == operation.phase if phase else operation.phase != "update")
            and dtype in (None, operation.dtype)
        )

    def flops(self, phase: Phase) -> int:
        """FLOPs of all contractions in one phase."""
        return sum(operation.flops for operation in self.operations if operation.phase == phase)

    def of_class(self, operation_class: OperationClass, phase: Phase) -> int:
        """Executions of one class in one phase."""
        return sum(
            one.count for one in self.operations if one.operation_class == operation_class and one.phase == phase
        )
