"""Parts of a `Trace`: its batch, its memory, the optimizer, captured graphs, and low precision."""

from collections.abc import Mapping

from assay.config.base import Frozen
from assay.records.trace.float8_products import Float8Product
from assay.records.trace.loss_scaling import Scaling
from assay.records.trace.updates import Group, Updated


class Batch(Frozen):
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


class Memory(Frozen):
    """Bytes of one step on this rank."""

    saved_bytes: Mapping[str, int]
    """Peak of the bytes of distinct storages saved for backward, by category, without parameters and their aliases.
    Micro-batches whose saved tensors do not live together are not added up."""
    offloaded_saved_bytes: int = 0
    """Bytes of saved tensors copied to another device until backward, summed over savings and micro-batches."""
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


class Precision(Frozen):
    """Products and gradients that low precision scales."""

    float8: tuple[Float8Product, ...] = ()
    scaling: Scaling = Scaling()
