"""Memory of a rank of a layout: its parameters, their gradients and state, and its activations at their peak.

Tensor parallelism is Megatron-LM's: it divides matrices, the biases of divided outputs and the vocabulary. Norms,
biases after a sum and positions are on every rank. The last stage holds a copy of a tied embedding. A stage's
activations are those of a layer, times its layers, times the micro-batches that its schedule holds. The first stage
adds the dropout mask of the embedding, the last stage the logits and their inputs (arXiv:2205.05198, section 4.3).
Recomputation adds one layer's whole activations.

Buffers of collectives, gathered weights of ZeRO's third stage, fragmentation and the framework's own memory are left
out. They take several gigabytes on a real device.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from assay.config import ModelConfig
from assay.config.model import EMBEDDING_WEIGHT
from assay.cost import parameters
from assay.cost.closed_forms import Recompute, layer_activation_bytes, state_bytes
from assay.cost.mesh_layout import Layout
from assay.cost.operation import Tensor

_DIVIDED_BIASES = ("attention.qkv.bias", "mlp.up.bias", "mlp.gate.bias")


@dataclass(frozen=True)
class PlannedMemory:
    """Peak memory of one rank of a stage in bytes, and its number of parameters."""

    parameters: float
    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def nbytes(self) -> float:
        """Sum of weights, gradients, optimizer state and activations."""
        return self.weights + self.gradients + self.optimizer + self.activations


def rank_parameters(model: ModelConfig, layout: Layout) -> list[float]:
    """Number of parameters of a rank, by stage, before ZeRO divides them."""
    mesh, last = layout.mesh, layout.last_stage
    every = parameters(model)
    divided, whole = _share((name, one) for name, one in every.items() if name.startswith("blocks.0."))
    stages = [(divided / mesh.tp + whole) * layers for layers in layout.layers(model)]
    token = every[EMBEDDING_WEIGHT].elements / mesh.tp
    stages[0] += token + sum(one.elements for name, one in every.items() if name == "embedding.position.weight")
    stages[last] += sum(one.elements for name, one in every.items() if name.startswith("head.norm"))
    if last != 0 or not model.tie_embeddings:
        stages[last] += token
    return stages


def _share(named: Iterable[tuple[str, Tensor]]) -> tuple[int, int]:
    """Number of elements that tensor parallelism divides, and number that every rank holds."""
    divided = whole = 0
    for name, one in named:
        if len(one.shape) == 2 or name.endswith(_DIVIDED_BIASES):
            divided += one.elements
        else:
            whole += one.elements
    return divided, whole


def rank_memory(model: ModelConfig, layout: Layout, micro_batches: tuple[Fraction, ...]) -> tuple[PlannedMemory, ...]:
    """Memory of one rank of each stage, with the given number of micro-batches alive at once in each."""
    mesh = layout.mesh
    stages = []
    for stage, count in enumerate(rank_parameters(model, layout)):
        weights, gradients, optimizer = state_bytes(count, mesh.dp * mesh.cp, layout.zero)
        kept = _activations(model, layout, stage, float(micro_batches[stage]))
        stages.append(PlannedMemory(count, weights, gradients, optimizer, kept))
    return tuple(stages)


def _activations(model: ModelConfig, layout: Layout, stage: int, alive: float) -> float:
    mesh = layout.mesh

    def layer(recompute: Recompute) -> float:
        return layer_activation_bytes(
            model,
            layout.micro_batch,
            tensor=mesh.tp,
            context=mesh.cp,
            sequence_parallel=layout.sequence_parallel,
            recompute=recompute,
        )

    kept = alive * layout.layers(model)[stage] * layer(layout.recompute)
    if layout.recompute != "none":
        kept += layer("none") - layer(layout.recompute)
    tokens = layout.micro_batch * model.context_length / mesh.cp
    if stage == 0 and model.dropout:
        kept += alive * tokens * model.n_embd / (mesh.tp if layout.sequence_parallel else 1)
    if stage == layout.last_stage:
        kept += 4 * tokens * (model.n_embd + model.vocabulary) / mesh.tp
    return kept
