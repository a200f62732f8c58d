"""What a rank of a layout sends in a step, by axis: the collectives that each way of dividing needs.

- tp: a layer sums its two branches forwards and backwards, over activations of 2bsh bytes (arXiv:1909.08053). With
  sequence parallelism each sum is a reduce-scatter and an all-gather, the same bytes, and backward gathers the two
  divided inputs once more (arXiv:2205.05198, section 4.2.2). What is recomputed in full sums again.
- cp: keys and values go round the ring, forwards, and backwards with their gradients (arXiv:2310.01889).
- pp: a stage sends its output down and its input's gradient up, once a chunk. A tied embedding's two copies are added.
- dp+cp: gradients are summed once a step; ZeRO's stages 1 and 2 scatter the sums and gather the weights, stage 3
  gathers the weights for every forward and backward and keeps a share of the sums (arXiv:1910.02054, section 7). From
  stage 2 on a share is all that is kept, so each micro-batch's gradients are summed.

Left out, being small: losses, norms, the vocabulary's softmax, the embedding's own sum.
"""

from collections.abc import Iterator, Sequence

from assay.config import ModelConfig
from assay.cost.collectives import Communication
from assay.cost.layout import Layout
from assay.estimate.held import rank_parameters

_BYTES = 2
"""Of an activation, a weight and a gradient: 16 bits."""


def layer_traffic(model: ModelConfig, layout: Layout, *, backward: bool) -> list[Communication]:
    """What one layer sends for one micro-batch, in one direction; recomputation belongs to backward."""
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
    """What crosses from one stage to the next for one micro-batch: the same forwards and backwards."""
    tokens = layout.micro_batch * model.context_length / layout.mesh.cp
    return _BYTES * tokens * model.n_embd / (layout.mesh.tp if layout.sequence_parallel else 1)


def gradient_traffic(model: ModelConfig, layout: Layout) -> list[Communication]:
    """What the ranks that share a batch send in a step: of the stage with the most parameters."""
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
    """Everything that a rank sends in a step, at the stage that sends most."""
    return [*_layers(model, layout), *_pipeline(model, layout), *gradient_traffic(model, layout)]


def _layers(model: ModelConfig, layout: Layout) -> Iterator[Communication]:
    times = int(layout.micro_batches * max(layout.layers(model)))
    for backward in (False, True):
        for one in layer_traffic(model, layout, backward=backward):
            yield Communication(one.collective, one.axis, one.payload_bytes, one.count * times, one.what)


def _pipeline(model: ModelConfig, layout: Layout) -> Sequence[Communication]:
    """Of the stage that sends most: one between two others, or an end, which adds up the tied embedding."""
    if layout.mesh.pp == 1:
        return []
    ends = _end_stage(model, layout)
    between = [_passed_on(model, layout, 2 * layout.chunks)] if layout.mesh.pp > 2 else []
    return max(between, ends, key=lambda sent: sum(one.payload_bytes * one.count for one in sent))


def _end_stage(model: ModelConfig, layout: Layout) -> Sequence[Communication]:
    """The first has nobody to send a gradient to, and the last no activations; a vee's turn sends to none."""
    sent = [_passed_on(model, layout, 2 if layout.last_stage == 0 else 2 * layout.chunks - 1)]
    if model.tie_embeddings and layout.last_stage != 0:
        # Summed between two ranks, an all-reduce sends each one's copy once.
        copy = _BYTES * model.vocabulary * model.n_embd / layout.mesh.tp
        sent.append(Communication("send", "pp", copy, 1, "the tied embedding's gradient"))
    return sent


def _passed_on(model: ModelConfig, layout: Layout, times: int) -> Communication:
    """As many sends of each micro-batch."""
    count = times * layout.micro_batches
    return Communication("send", "pp", stage_send_bytes(model, layout), count, "activations and their gradients")
