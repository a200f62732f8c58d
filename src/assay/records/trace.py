"""Record of one instrumented step as plain data, without tensors or torch, so that proofs are cheap to read and keep.

The traced program is the one that is timed, but the traced step is never timed. `verify` reads the trace: a claim about
the step is proven only if it is visible here.
"""

from collections.abc import Mapping
from typing import Literal

from assay.config.base import Frozen

Setting = float | tuple[float, ...]


class Group(Frozen):
    """One parameter group of the optimizer, with its settings in the update."""

    parameters: tuple[str, ...]
    settings: Mapping[str, Setting]
    """Learning rate, weight decay, betas and other numbers, under torch's names."""


class Updated(Frozen):
    """One parameter that the optimizer of this rank updates."""

    name: str
    elements: int
    """Number of elements that this rank's optimizer updates."""
    written: Mapping[str, int] = {}
    """Number of elements of the parameter written during the update, by operator; compiled code shows no operators."""
    changes: int = 0
    """Number of times that an operator or a compiled kernel changed the tensor in place, by torch's version counter."""
    state: Mapping[str, int] = {}
    """Bytes of this rank's optimizer state, by key."""
    steps: float | None = None
    """Number of updates that the state has counted; None if it has no count."""


class Scaling(Frozen):
    """Loss scale of one step."""

    value: float = 1.0
    """Scale in force when the step began."""
    losses: int = 0
    """Number of losses that were scaled."""
    factors: tuple[float, ...] = ()
    """Distinct ratios of a scaled loss to the loss."""
    due: tuple[float, float] | None = None
    """Least and largest scale that are due, from the initial value, skipped updates and growth; None: unknown."""


class Float8Product(Frozen):
    """All products of one step that agree in phase and formats."""

    phase: Literal["forward", "backward", "recompute", "update"]
    formats: tuple[str, str]
    """Dtypes of the left and the right factor."""
    count: int
    full_scale: int | None
    """Products in which the largest element of each factor is the largest number of its format, as with the best scale.
    None: the factors' values cannot be read, as in compiled code."""


class Masks(Frozen):
    """Counts of one step's dropout masks, without those drawn in compiled code, CUDA graphs or fused attention."""

    drawn: int = 0
    """Masks drawn in forward."""
    elements: int = 0
    zeros: int = 0
    repeated: int = 0
    """Forward masks equal to an earlier one of the step. Small masks, which may agree by chance, are excluded."""
    again: int = 0
    """Masks drawn in recomputed forwards."""
    unequal: int = 0
    """Recomputed masks that match none of the forward's."""
    digests: tuple[int, ...] = ()
    """Checksums of the forward masks, without small ones, to be compared with another step's."""


class TracedBatch(Frozen):
    """The step's batch, and how this rank got its part."""

    targets: int
    """Number of targets in the whole step."""
    sequences: int = 0
    """Number of sequences of the batch that this rank requested."""
    prepared: Mapping[str, int] = {}
    """Number of this step's sequences that were not simply read from prepared tokens, by their maker."""
    makers: Mapping[str, int] = {}
    """Number of makers of batches for this rank, by kind, for instance of processes."""
    data_seconds: float = 0.0
    """Seconds that the host waited for its batch."""


class TracedMemory(Frozen):
    """Bytes of one step on this rank."""

    saved_bytes: Mapping[str, int]
    """Peak of the bytes of distinct storages saved for backward, by category, without parameters and their aliases.
    Micro-batches whose saved tensors do not live together are not added up."""
    offloaded_saved_bytes: int = 0
    """Bytes of saved tensors copied to another device until backward, summed over savings and micro-batches."""
    unmoved_saved_bytes: int = 0
    """Bytes of saved tensors, without weights, that stayed where they were while others were copied away."""
    moved_weight_bytes: int = 0
    """Bytes of weights that were copied away as saved tensors, summed over savings."""
    parameter_bytes: int
    offloaded_bytes: int = 0
    """Bytes of parameters in host memory while the step runs on another device."""
    whole_parameter_bytes: int = 0
    """Bytes of this rank's parameters with sharded ones counted whole, as on one device."""
    gradient_bytes: int
    """Bytes of gradients alive at the end of backward."""
    gradients_together_bytes: int = 0
    """Most bytes of gradients alive when an optimizer began to step."""
    optimizer_state_bytes: int
    offloaded_state_bytes: int = 0
    """Bytes of optimizer state in host memory while the step runs on another device."""
    whole_state_bytes: Mapping[str, int] = {}
    """Bytes of optimizer state by dtype, with sharded tensors counted whole."""

    @property
    def whole_optimizer_state_bytes(self) -> int:
        """Bytes of optimizer state with sharded tensors counted whole, as on one device."""
        return sum(self.whole_state_bytes.values())

    @property
    def saved_total_bytes(self) -> int:
        """Peak of the bytes saved for backward, over all categories."""
        return sum(self.saved_bytes.values())


class Optimizer(Frozen):
    """The optimizer's groups, and the updates of the step."""

    updates: tuple[Updated, ...] = ()
    """Parameters that the optimizer updates."""
    groups: tuple[Group, ...] = ()
    """Parameter groups of the optimizer."""
    updates_in_backward: int = 0
    """Number of optimizer steps while backward was running."""
    learning_rate: float | None = None
    """Learning rate that the schedule has for this step."""


class CompiledGraph(Frozen):
    """One graph that a compiler captured, and its use in this step."""

    backward: bool
    calls: int
    """Number of times that the step ran its code."""
    operations: int
    """Number of operators in the graph, without views."""
    contractions: int
    """Number of tensor contractions among them."""
    kernels: int
    """Number of fused loops generated for it."""


class Graphs(Frozen):
    """Graphs that a compiler or the device captured."""

    compiled: tuple[CompiledGraph, ...] = ()
    """Graphs whose code this step ran; their operations are among `operations`."""
    graph_breaks: int = 0
    """Number of graph breaks since the process began."""
    training_graphs: int = 0
    """Number of forward and backward graphs captured for training since the process began, without evaluation's."""
    graph_replays: int = 0
    """Number of micro-batches whose forward and backward the device replayed."""
    captured_contractions: int = 0
    """Number of tensor contractions in the replayed graphs; they are among `operations`."""

    def calls(self, *, backward: bool) -> int:
        """Number of calls of compiled code in one direction."""
        return sum(graph.calls for graph in self.compiled if graph.backward is backward)


class TracedPrecision(Frozen):
    """Products and gradients that low precision scales."""

    float8: tuple[Float8Product, ...] = ()
    scaling: Scaling = Scaling()


Phase = Literal["forward", "backward", "recompute", "update"]
"""Part of a step. `recompute`: forward operations that a checkpoint repeats during backward."""

OperationClass = Literal["contraction", "normalization", "elementwise", "movement", "communication"]
"""The three classes of arXiv:2007.00072 (tensor contractions, statistical normalizations, element-wise operators), with
data movement and communication added."""

ANOTHER_PROCESS = "another process"
"""Maker of a batch: a process that does not train."""
SIDE_STREAM = "a side stream"
"""Maker of a batch: a copy to the device that overlapped a step."""
DOCUMENTS = "documents"
"""Maker of a batch: a stream of documents that are tokenized for it."""
ENDED = "rows in which a document ends"
"""Sequences of a batch in which a document ends, so that a mask of documents is not only causal."""


class TracedOperation(Frozen):
    """All executions of one operator that agree in phase and dtype."""

    name: str
    """Torch's name without the default overload, for instance `aten.mm`."""
    phase: Phase
    operation_class: OperationClass
    dtype: str
    """Dtype of the first floating-point tensor argument, or else of the result; `tf32` for a float32 contraction that
    may use it."""
    count: int
    flops: int
    """FLOPs of contractions, a multiply-add counted as two; 0 for other operators."""
    bytes: int
    """Bytes of tensor arguments and results, the least that it moves. In compiled code they are known for contractions
    only, because other operators are fused."""
    largest_bytes: int = 0
    """Bytes of the largest tensor that one execution returned."""
    part_of: str = ""
    """In compiled code: the operator that was decomposed into this one and others."""


class TracedCommunication(Frozen):
    """All calls of one collective by this rank that agree in mesh axis, phase and dtype."""

    collective: str
    """The field's name: all_reduce, all_gather, reduce_scatter, broadcast, all_to_all, send."""
    axis: str
    """Mesh axis of its group, or `world`."""
    phase: Phase
    count: int
    payload_bytes: int
    """Bytes of the whole tensor that is gathered, reduced or sent; a backend's traffic may differ."""
    dtype: str = ""
    """Dtype of the payload; empty in records of earlier versions."""


class BlockForward(Frozen):
    """All forwards of one block in a step, over all micro-batches, without recomputed operations."""

    block: int
    contractions: int
    flops: int
    last_contractions: int
    """Last contractions, one per forward. A checkpoint does not recompute one whose result backward does not need."""
    last_flops: int
    normalizations: int


class HeldParameter(Frozen):
    """One parameter of this rank, whole or as a shard."""

    name: str
    held_bytes: int
    """Bytes of this rank's shard."""
    whole_bytes: int
    """Bytes of the whole parameter."""
    divided_over: tuple[str, ...] = ()
    """Mesh axes whose ranks hold different shards."""
    dimensions: Mapping[str, int] = {}
    """Dimension that each of these axes divides."""
    shape: tuple[int, ...] = ()
    """Shape of this rank's shard."""
    whole_shape: tuple[int, ...] = ()
    dtype: str = "float32"
    trained: bool = True
    """False for a frozen weight, which has no gradient."""


class Trace(Frozen):
    """One optimizer step of one rank."""

    operations: tuple[TracedOperation, ...]
    communications: tuple[TracedCommunication, ...] = ()
    loss: float
    forwards: int
    """Number of times that the loss was computed, once per micro-batch."""
    batch: TracedBatch
    memory: TracedMemory
    optimizer: Optimizer
    graphs: Graphs = Graphs()
    precision: TracedPrecision = TracedPrecision()
    parameters: tuple[HeldParameter, ...] = ()
    """Parameters of this rank, whole or as shards."""
    read_every: int = 1
    """Number of steps whose figures the program reads together."""
    masks: Masks = Masks()
    recomputed_blocks: tuple[int, ...] = ()
    """Blocks whose weights recomputed operators read; empty if weights are gathered or code is compiled."""
    schedule: tuple[str, ...] = ()
    """Calls of a pipeline's stages on this rank, in order. `F0.1` is stage 0's forward of micro-batch 1; B is a whole
    backward; I and W are the backwards of inputs and of weights."""
    ranks: Mapping[str, int] = {}
    """Number of ranks along each axis of the mesh; empty on one device."""
    place: Mapping[str, int] = {}
    """Index of this rank along each axis of the mesh."""
    shared_parameters: tuple[tuple[str, ...], ...]
    """Groups of parameter names that share one storage."""
    block_forwards: tuple[BlockForward, ...] = ()
    left_settings: Mapping[str, str] = {}
    """Settings of torch that were others when the step was built, with their values after it."""
    synchronizations: Mapping[str, int]
    """Number of times by phase that the host waited for the device (`item`, `nonzero`, a blocking copy); `figures`: for
    the step's figures. Reads of an optimizer's update counts do not count: they are on the host for any device."""

    @property
    def trained(self) -> tuple[HeldParameter, ...]:
        """Parameters of this rank that are not frozen."""
        return tuple(one for one in self.parameters if one.trained)

    @property
    def trained_bytes(self) -> int:
        """Bytes of these parameters, with sharded ones counted whole."""
        return sum(one.whole_bytes for one in self.trained)

    @property
    def blocks(self) -> tuple[int, ...]:
        """Indices of the blocks whose weights are on this rank."""
        names = (one.name.split(".") for one in self.parameters)
        return tuple(sorted({int(parts[1]) for parts in names if parts[0] == "blocks"}))

    def held(self, fragment: str) -> tuple[int, int]:
        """Return (bytes on this rank, whole bytes) of the parameters whose name contains `fragment`."""
        named = [one for one in self.parameters if fragment in one.name]
        return sum(one.held_bytes for one in named), sum(one.whole_bytes for one in named)

    def communicated(
        self, *fragments: str, axis: str | None = None, phase: Phase | None = None, dtype: str | None = None
    ) -> int:
        """Payload bytes of the collectives whose name contains any of `fragments`; None: any axis, phase or dtype."""
        return sum(
            one.payload_bytes
            for one in self.communications
            if any(fragment in one.collective for fragment in fragments)
            and axis in (None, one.axis)
            and phase in (None, one.phase)
            and dtype in (None, one.dtype)
        )

    def calls(self, collective: str, axis: str, phase: Phase) -> int:
        """Number of calls of one collective along one axis in one phase."""
        return sum(
            one.count
            for one in self.communications
            if (one.collective, one.axis, one.phase) == (collective, axis, phase)
        )

    def count(self, *fragments: str, phase: Phase | None = None, dtype: str | None = None) -> int:
        """Number of executions whose name contains any of `fragments`, in one phase and dtype or in all."""
        return sum(
            operation.count
            for operation in self.operations
            if any(fragment in operation.name for fragment in fragments)
            and phase in (None, operation.phase)
            and dtype in (None, operation.dtype)
        )

    def largest_bytes(self, *fragments: str, phase: Phase | None = None) -> int:
        """Bytes of the largest result of an operator whose name contains any of `fragments`; 0 if there is none.

        In compiled code, operators into which such an operator was decomposed count as well.
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
        """Number of the model's tensor contractions (matrix products, fused attention), by phase and dtype or in all.

        Contractions of the update are the optimizer's own, and counted only if that phase is requested.
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
        """Number of executions of one class in one phase."""
        return sum(
            one.count for one in self.operations if one.operation_class == operation_class and one.phase == phase
        )
