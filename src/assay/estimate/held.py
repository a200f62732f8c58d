"""What a rank of a layout holds: its parameters, their state, and the activations it keeps at its worst moment.

Tensor parallelism is Megatron-LM's: matrices, their inputs' biases and the vocabulary are divided; norms, biases after
a sum and positions are on every rank. The last stage holds a copy of a tied embedding. A stage's activations are those
of a layer times its layers times the micro-batches that its schedule holds; to that come the dropout mask of the
embedding at the first stage, the logits and what they are made from at the last (arXiv:2205.05198, section 4.3), and
one layer's whole activations where they are made again.

It leaves out buffers of collectives, gathered weights of ZeRO's third stage, fragmentation and the framework's own:
several gigabytes on a real device.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from assay.config import ModelConfig
from assay.cost import parameters
from assay.cost.closed_forms import Recompute, layer_activation_bytes, state_bytes
from assay.cost.layout import Layout
from assay.cost.tensors import Tensor

_DIVIDED_BIASES = ("attention.qkv.bias", "mlp.up.bias", "mlp.gate.bias")


@dataclass(frozen=True)
class Held:
    """What one rank of a stage holds at its worst moment, in bytes."""

    parameters: float
    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def nbytes(self) -> float:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.activations


def rank_parameters(model: ModelConfig, layout: Layout) -> list[float]:
    """Parameters of a rank, by stage, before ZeRO divides them."""
    mesh, last = layout.mesh, layout.last_stage
    every = parameters(model)
    divided, whole = _share((name, one) for name, one in every.items() if name.startswith("blocks.0."))
    stages = [(divided / mesh.tp + whole) * layers for layers in layout.layers(model)]
    token = every["embedding.token.weight"].elements / mesh.tp
    stages[0] += token + sum(one.elements for name, one in every.items() if name == "embedding.position.weight")
    stages[last] += sum(one.elements for name, one in every.items() if name.startswith("head.norm"))
    if last != 0 or not model.tie_embeddings:
        stages[last] += token
    return stages


def _share(named: Iterable[tuple[str, Tensor]]) -> tuple[int, int]:
    """Elements that tensor parallelism divides, and elements that every rank has."""
    divided = whole = 0
    for name, one in named:
        if len(one.shape) == 2 or name.endswith(_DIVIDED_BIASES):
            divided += one.elements
        else:
            whole += one.elements
    return divided, whole


def held(model: ModelConfig, layout: Layout, micro_batches: tuple[Fraction, ...]) -> tuple[Held, ...]:
    """By stage, with so many micro-batches alive at once in each."""
    mesh = layout.mesh
    stages = []
    for stage, count in enumerate(rank_parameters(model, layout)):
        weights, gradients, optimizer = state_bytes(count, mesh.dp * mesh.cp, layout.zero)
        kept = _activations(model, layout, stage, float(micro_batches[stage]))
        stages.append(Held(count, weights, gradients, optimizer, kept))
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
