"""Traffic of a rank of a layout in a step, by axis: the collectives of each kind of parallelism.

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

Losses, norms, the vocabulary's softmax and the embedding's own sum are left out, because they are small.
"""

from collections.abc import Iterator, Sequence

from assay.config import ModelConfig
from assay.cost.analytic.layout import Layout
from assay.cost.collectives import Communication
from assay.estimator.planned_memory import rank_parameters

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
