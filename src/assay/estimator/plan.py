"""Plan of a step on absent machines: memory of a rank, bytes by axis, the pipeline's bubble, seconds and MFU.

One rate describes a device: the FLOP/s that its matrix products reach while nothing else is waited for. On an A100 in
16 bits it is about 0.6 of the peak. Larger products reach more, which a single rate cannot express. A layer takes its
FLOPs over that rate plus its collectives by the α–β model, without overlap. The schedule is simulated with these
stages, the last of which also has the logits. Gradients are reduced at the end, without overlap too. The result is the
time of a step at a steady rate with no overlap.

With 200 TFLOP/s for an A100, plans are within 12 % of published steps of 146 billion parameters and more. Quotients of
two of them are within 2 %, because the rate cancels. Steps of smaller models are planned up to 45 % too fast, since one
rate leaves out smaller products and all other operations. Stragglers, contention, the update and data loading are not
modelled.

The traffic of a rank is that of the collectives of each kind of parallelism:

- tp: a layer all-reduces its two branches in forward and in backward, over activations of 2bsh bytes
  (arXiv:1909.08053). Sequence parallelism replaces each all-reduce by a reduce-scatter and an all-gather with the same
  bytes. Its backward gathers the two divided inputs once more (arXiv:2205.05198, section 4.2.2). Full recomputation
  repeats the sums of forward.
- cp: keys and values pass around the ring in forward, and in backward with their gradients (arXiv:2310.01889).
- pp: a stage sends its output to the next and its input's gradient to the previous one, once per chunk. The gradients
  of a tied embedding's two copies are summed.
- dp+cp: gradients are reduced once per step. ZeRO's stages 1 and 2 scatter the sums and gather the weights. Stage 3
  gathers the weights for every forward and backward and keeps a shard of the sums (arXiv:1910.02054, section 7).
  From stage 2 on only a shard of the gradients is kept, so those of each micro-batch are reduced.

Losses, norms, the vocabulary's softmax and the embedding's own sum are left out, because they are small. Other sources
are those of `cost.closed_forms` and `cost.pipeline_bubble`.

Tensor parallelism is Megatron-LM's: it divides matrices, the biases of divided outputs and the vocabulary. Norms,
biases after a sum and positions are on every rank. The last stage holds a copy of a tied embedding. A stage's
activations are those of a layer, times its layers, times the micro-batches that its schedule holds. The first stage
adds the dropout mask of the embedding, the last stage the logits and their inputs (arXiv:2205.05198, section 4.3).
Recomputation adds one layer's whole activations. The papers' logits are one copy in 32 bits. At the loss a step also
holds them in 16 bits, and a gradient in 32 bits: 10 bytes of each. A divided vocabulary takes 18 for each of its share.

Buffers of collectives, gathered weights of ZeRO's third stage, fragmentation and the framework's own memory are left
out. They take several gigabytes on a real device.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from assay.config import ModelConfig
from assay.config.model import EMBEDDING_WEIGHT
from assay.cost import parameter_count, parameters
from assay.cost.closed_forms import Recompute, forward_flops, layer_activation_bytes, state_bytes, step_flops
from assay.cost.collectives import Communication, sent_by_axis
from assay.cost.mesh_layout import Layout
from assay.cost.operation import Tensor
from assay.cost.pipeline_bubble import Played, StageTime, play
from assay.errors import UsageError
from assay.estimator.alpha_beta import seconds
from assay.hardware.links import Network

_DIVIDED_BIASES = ("attention.qkv.bias", "mlp.up.bias", "mlp.gate.bias")


@dataclass(frozen=True)
class PlannedMemory:
    """Peak memory of one rank of a stage in bytes, and its number of parameters."""

    parameters: float
    weights: float
    gradients: float
    optimizer: float
    activations: float
    """Bytes saved for backward, as papers count them; of the logits they have one copy in 32 bits."""
    loss: float
    """Bytes that the loss holds beyond these at its highest instant."""

    @property
    def nbytes(self) -> float:
        """Sum of weights, gradients, optimizer state, activations and the loss."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.loss


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
        loss = _loss(model, layout) if stage == layout.last_stage else 0.0
        stages.append(PlannedMemory(count, weights, gradients, optimizer, kept, loss))
    return tuple(stages)


def _activations(model: ModelConfig, layout: Layout, stage: int, alive: float) -> float:
    mesh = layout.mesh
    kept = alive * layout.layers(model)[stage] * _layer(model, layout, layout.recompute) + _recomputed(model, layout)
    tokens = layout.micro_batch * model.context_length / mesh.cp
    if stage == 0 and model.dropout:
        kept += alive * tokens * model.n_embd / (mesh.tp if layout.sequence_parallel else 1)
    if stage == layout.last_stage:
        kept += tokens * (4 * model.n_embd + _SAVED_LOGIT * model.vocabulary) / mesh.tp
    return kept


def _layer(model: ModelConfig, layout: Layout, recompute: Recompute) -> float:
    """Bytes of a layer and a micro-batch."""
    return layer_activation_bytes(
        model,
        layout.micro_batch,
        tensor=layout.mesh.tp,
        context=layout.mesh.cp,
        sequence_parallel=layout.sequence_parallel,
        recompute=recompute,
    )


def _recomputed(model: ModelConfig, layout: Layout) -> float:
    """Bytes that recomputation makes of one layer at a time."""
    return _layer(model, layout, "none") - _layer(model, layout, layout.recompute)


_SAVED_LOGIT = 4
"""Bytes of a logit among the activations, as papers count them."""
_WHOLE_LOGIT, _DIVIDED_LOGIT = 10, 18
"""Bytes of a logit at the loss by the ledger of a step on a GPU, with a whole vocabulary and with a divided one."""


def _loss(model: ModelConfig, layout: Layout) -> float:
    """Bytes of the logits at the loss that are not among the activations.

    No layer is recomputed at that instant, so the larger of both counts.
    """
    each = _WHOLE_LOGIT if layout.mesh.tp == 1 else _DIVIDED_LOGIT
    logits = layout.micro_batch * model.context_length * model.vocabulary / layout.mesh.cp / layout.mesh.tp
    return max(0.0, (each - _SAVED_LOGIT) * logits - _recomputed(model, layout))


LARGE = 146e9
"""Parameters from which published steps were within 12 % of their plans."""


def spread_of_plan(model: ModelConfig) -> tuple[float, float]:
    """Return the factors between which a step lies: its plan is 12 % off, and up to 45 % too fast if it is smaller."""
    return 1 / 1.12, 1 / (0.88 if parameter_count(model) >= LARGE else 0.55)


@dataclass(frozen=True)
class StepPlan:
    """Predicted step of a model on a layout."""

    model: ModelConfig
    layout: Layout
    held: tuple[PlannedMemory, ...]
    """Memory of one rank of each pipeline stage."""
    communications: tuple[Communication, ...]
    """Communications of a rank at the stage that sends most."""
    played: Played
    """Simulated forward and backward of all micro-batches through the pipeline."""
    gradient_seconds: float
    """Seconds to reduce the gradients at the end of the step."""

    @property
    def parameters(self) -> int:
        """Number of parameters of the whole model."""
        return parameter_count(self.model)

    @property
    def memory_bytes(self) -> float:
        """Bytes of the rank that holds most."""
        return max(stage.nbytes for stage in self.held)

    @property
    def sent_bytes(self) -> dict[str, float]:
        """Bytes that one rank sends in one step, by axis."""
        return sent_by_axis(self.communications, self.layout.mesh)

    @property
    def bubble(self) -> float:
        """Share of forward and backward in which an average stage waits."""
        return self.played.idle_share

    @property
    def step_seconds(self) -> float:
        """Seconds of forward, backward and the reduction of the gradients."""
        return self.played.makespan_seconds + self.gradient_seconds

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second of all devices together."""
        return self.layout.batch * self.model.context_length / self.step_seconds

    @property
    def executed_flops(self) -> float:
        """FLOP/s of a device, including recomputation."""
        return step_flops(self.model, self.layout.batch, self.layout.recompute) / self._device_seconds

    def mfu(self, peak_flops: float) -> float:
        """Model FLOPs utilization: the share of a device's peak that the model's own FLOPs take."""
        return step_flops(self.model, self.layout.batch) / self._device_seconds / peak_flops

    def training_seconds(self, tokens: float) -> float:
        """Seconds to train on `tokens` tokens."""
        return tokens / self.tokens_per_second

    @property
    def _device_seconds(self) -> float:
        return self.step_seconds * self.layout.mesh.size


def plan(model: ModelConfig, layout: Layout, network: Network, device_flops: float) -> StepPlan:
    """Predict a step. `device_flops` is the rate that a device's products reach, in FLOP/s.

    Raises `UsageError` if the vocabulary size is not set, or if model, batch and mesh do not divide.
    """
    if model.vocab_size is None:
        raise UsageError("a plan needs the vocabulary's size: set model.vocab_size")
    layout.check(model)
    mesh = layout.mesh
    send = network.link(mesh, "pp").seconds(stage_send_bytes(model, layout)) if mesh.pp > 1 else 0.0
    played = play(layout.order(), stage_times(model, layout, network, device_flops), send)
    return StepPlan(
        model,
        layout,
        rank_memory(model, layout, played.held),
        tuple(traffic(model, layout)),
        played,
        seconds(gradient_traffic(model, layout), mesh, network),
    )


def stage_times(model: ModelConfig, layout: Layout, network: Network, device_flops: float) -> Sequence[StageTime]:
    """Seconds of each stage for one micro-batch: its products at the device's rate, and its collectives."""
    mesh = layout.mesh
    flops = forward_flops(model, layout.micro_batch)
    rate = device_flops * mesh.tp * mesh.cp
    layer = (flops["weights"] + flops["scores"]) / model.n_layer / rate
    again = {"none": 0.0, "selective": flops["scores"] / model.n_layer / rate, "full": layer}[layout.recompute]
    down, up = (seconds(layer_traffic(model, layout, backward=backward), mesh, network) for backward in (False, True))
    times = []
    for stage, layers in enumerate(layout.layers(model)):
        logits = flops["logits"] / rate if stage == layout.last_stage else 0.0
        # Backward has two products for each of forward: one for the input's gradient, one for the weight's.
        forward, backward = layers * (layer + down) + logits, layers * (layer + again + up) + logits
        times.append(StageTime(forward, backward, layers * layer + logits))
    return times


_BYTES = 2
"""Bytes per element of activations, weights and gradients: 16 bits."""


def layer_traffic(model: ModelConfig, layout: Layout, *, backward: bool) -> list[Communication]:
    """Communications of one layer for one micro-batch in one direction; recomputation counts as backward."""
    mesh = layout.mesh
    tokens = layout.micro_batch * model.context_length / mesh.cp
    hidden = _BYTES * tokens * model.n_embd
    sent = []
    if mesh.tp > 1:
        sums = 4 if backward and layout.recompute == "full" else 2
        if layout.sequence_parallel:
            sent.append(Communication("reduce_scatter", "tp", hidden, sums, "branch sums"))
            sent.append(Communication("all_gather", "tp", hidden, sums + (2 if backward else 0), "branch inputs"))
        else:
            sent.append(Communication("all_reduce", "tp", hidden, sums, "branch sums"))
    if mesh.cp > 1:
        pairs = 2 * _BYTES * layout.micro_batch * model.context_length * model.kv_heads * model.head_dim / mesh.tp
        again = 2 if backward and layout.recompute == "full" else 1
        sent.append(Communication("all_gather", "cp", pairs, again, "keys and values"))
        if backward:
            sent.append(Communication("reduce_scatter", "cp", pairs, 1, "their gradients"))
    return sent


def stage_send_bytes(model: ModelConfig, layout: Layout) -> float:
    """Bytes that one stage sends to the next for one micro-batch; as many return in backward."""
    tokens = layout.micro_batch * model.context_length / layout.mesh.cp
    return _BYTES * tokens * model.n_embd / (layout.mesh.tp if layout.sequence_parallel else 1)


def gradient_traffic(model: ModelConfig, layout: Layout) -> list[Communication]:
    """Communications in a step among the ranks that share a batch, at the stage with the most parameters."""
    mesh = layout.mesh
    payload = _BYTES * max(rank_parameters(model, layout))
    passes = layout.micro_batches if layout.zero >= 2 else 1
    axis = "dp+cp"
    if mesh.dp * mesh.cp == 1:
        return []
    if layout.zero == 0:
        return [Communication("all_reduce", axis, payload, 1, "gradients")]
    gathers = 2 * layout.micro_batches if layout.zero == 3 else 1
    return [
        Communication("reduce_scatter", axis, payload, passes, "gradients"),
        Communication("all_gather", axis, payload, gathers, "weights"),
    ]


def traffic(model: ModelConfig, layout: Layout) -> list[Communication]:
    """Communications of a rank in a step, at the stage that sends most."""
    return [*_layers(model, layout), *_pipeline(model, layout), *gradient_traffic(model, layout)]


def _layers(model: ModelConfig, layout: Layout) -> Iterator[Communication]:
    times = int(layout.micro_batches * max(layout.layers(model)))
    for backward in (False, True):
        for one in layer_traffic(model, layout, backward=backward):
            yield Communication(one.collective, one.axis, one.payload_bytes, one.count * times, one.what)


def _pipeline(model: ModelConfig, layout: Layout) -> Sequence[Communication]:
    """Communications of the stage that sends most: an inner or an end stage, which also sums the tied embedding."""
    if layout.mesh.pp == 1:
        return []
    ends = _end_stage(model, layout)
    between = [_passed_on(model, layout, 2 * layout.chunks)] if layout.mesh.pp > 2 else []
    return max(between, ends, key=lambda sent: sum(one.payload_bytes * one.count for one in sent))


def _end_stage(model: ModelConfig, layout: Layout) -> Sequence[Communication]:
    """Communications of an end stage. The first sends no gradients, the last no activations.

    At the turn of a vee, a stage sends nothing to itself.
    """
    sent = [_passed_on(model, layout, 2 if layout.last_stage == 0 else 2 * layout.chunks - 1)]
    if model.tie_embeddings and layout.last_stage != 0:
        # An all-reduce between two ranks sends each rank's copy once.
        copy = _BYTES * model.vocabulary * model.n_embd / layout.mesh.tp
        sent.append(Communication("send", "pp", copy, 1, "the tied embedding's gradient"))
    return sent


def _passed_on(model: ModelConfig, layout: Layout, times: int) -> Communication:
    """Sends that occur `times` times for each micro-batch."""
    count = times * layout.micro_batches
    return Communication("send", "pp", stage_send_bytes(model, layout), count, "activations and their gradients")
