"""How a model lies on a mesh: which parameters a rank holds, and what activations it keeps at its worst moment.

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
from typing import Literal

from assay.config import ModelConfig
from assay.config.mesh import Mesh
from assay.cost import parameters, schedules
from assay.cost.closed_forms import Recompute, layer_activation_bytes, state_bytes
from assay.cost.schedules import Schedule
from assay.cost.tensors import Tensor
from assay.errors import UsageError

_DIVIDED_BIASES = ("attention.qkv.bias", "mlp.up.bias", "mlp.gate.bias")


@dataclass(frozen=True)
class Layout:
    """Everything about a step on many devices that is not the model."""

    mesh: Mesh
    batch: int
    """Sequences of a step, over all ranks."""
    micro_batch: int = 1
    schedule: Literal["gpipe", "one_f_one_b", "interleaved", "zero_bubble_h1"] = "one_f_one_b"
    chunks: int = 1
    """Of the layers that a stage holds; more than one only when interleaved."""
    zero: Literal[0, 1, 2, 3] = 0
    sequence_parallel: bool = False
    recompute: Recompute = "none"

    @property
    def micro_batches(self) -> int:
        """How many each pipeline gets. Raises `UsageError` where the batch does not divide."""
        share = self.mesh.dp * self.micro_batch
        if self.batch % share:
            raise UsageError(
                f"a batch of {self.batch} does not divide among dp={self.mesh.dp} in micro-batches of "
                f"{self.micro_batch}; make it a multiple of {share}"
            )
        return self.batch // share

    def order(self) -> Schedule:
        """The schedule of its pipeline. Raises `UsageError` where it does not exist."""
        stages, micro_batches = self.mesh.pp, self.micro_batches
        if self.schedule != "interleaved":
            if self.chunks > 1:
                raise UsageError(f"the schedule {self.schedule!r} has one chunk a stage; take 'interleaved' for more")
            return {
                "gpipe": schedules.gpipe,
                "one_f_one_b": schedules.one_f_one_b,
                "zero_bubble_h1": schedules.zero_bubble_h1,
            }[self.schedule](stages, micro_batches)
        try:
            return schedules.interleaved(stages, micro_batches, self.chunks)
        except ValueError as error:
            raise UsageError(str(error)) from error

    def check(self, model: ModelConfig) -> None:
        """Raise `UsageError` where the model does not divide so."""
        parts = self.mesh.pp * self.chunks
        for degree, what, count in (
            (parts, "n_layer", model.n_layer),
            (self.mesh.tp, "n_head", model.n_head),
            (self.mesh.cp, "context_length", model.context_length),
        ):
            if count % degree:
                raise UsageError(f"{what}={count} does not divide by {degree}; take a {what} or a degree that does")


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


def rank_parameters(model: ModelConfig, mesh: Mesh) -> list[float]:
    """Parameters of a rank, by stage, before ZeRO divides them."""
    every = parameters(model)
    divided, whole = _share((name, one) for name, one in every.items() if name.startswith("blocks.0."))
    stages = [(divided / mesh.tp + whole) * model.n_layer / mesh.pp] * mesh.pp
    token = every["embedding.token.weight"].elements / mesh.tp
    stages[0] += token + sum(one.elements for name, one in every.items() if name == "embedding.position.weight")
    stages[-1] += sum(one.elements for name, one in every.items() if name.startswith("head.norm"))
    if mesh.pp > 1 or not model.tie_embeddings:
        stages[-1] += token
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
    for stage, count in enumerate(rank_parameters(model, mesh)):
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

    kept = alive * model.n_layer / mesh.pp * layer(layout.recompute)
    if layout.recompute != "none":
        kept += layer("none") - layer(layout.recompute)
    tokens = layout.micro_batch * model.context_length / mesh.cp
    if stage == 0 and model.dropout:
        kept += alive * tokens * model.n_embd / (mesh.tp if layout.sequence_parallel else 1)
    if stage == mesh.pp - 1:
        kept += 4 * tokens * (model.n_embd + model.vocabulary) / mesh.tp
    return kept
