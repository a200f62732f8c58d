"""Parts of a `Cost`: its batch, the way backward runs, the optimizer's step, sharding, and the pipeline."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Self

from assay.cost.optimizers.updates import AdamWUpdate, Instant, UpdateRule
from assay.cost.pipeline_schedules import Schedule
from assay.cost.simulation.fsdp_groups import ShardedGroup
from assay.cost.tensor import Tensor


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
