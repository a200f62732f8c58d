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

Sources: those of `cost.closed_forms`, `cost.pipeline` and `estimate.traffic`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from assay.config import ModelConfig
from assay.cost import parameter_count
from assay.cost.analytic.closed_forms import forward_flops, step_flops
from assay.cost.analytic.layout import Layout
from assay.cost.collectives import Communication, sent_by_axis
from assay.cost.pipeline.bubble import Played, StageTime, play
from assay.errors import UsageError
from assay.estimator.communication import seconds
from assay.estimator.planned_memory import PlannedMemory, held
from assay.estimator.traffic import gradient_traffic, layer_traffic, stage_send_bytes, traffic
from assay.hardware.links import Network

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
        held(model, layout, played.held),
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
