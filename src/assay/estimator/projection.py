"""A run on absent machines: its techniques are folded into a layout, which is planned with datasheets.

No technique is known by its name: `axes` make the mesh, `lay_out` makes the layout, and a technique that a plan cannot
express raises an error. A plan always assumes 16-bit products with Adam's state in 32 bits (16 bytes per parameter). It
also assumes GPT-2's block: an MLP of four times the width, and as many key and value heads as query heads.
"""

from dataclasses import asdict, dataclass
from typing import Any

from assay.config import ModelConfig, ResolvedRun, Run
from assay.config.mesh import AXES
from assay.cost.mesh_layout import Layout
from assay.cost.pipeline_bubble import bubble_fraction
from assay.errors import UsageError
from assay.estimator.cost import Training
from assay.estimator.plan import PlannedMemory, StepPlan, plan, spread_of_plan
from assay.hardware.cluster import Cluster
from assay.hardware.links import Link, inside_node
from assay.optimizations import check, mesh_of, optimizations_of, resolve_run

PARTS = ("weights", "gradients", "optimizer", "activations", "loss")
"""Parts of a rank's planned memory."""


@dataclass(frozen=True)
class Projection:
    """A plan with its run and its machines."""

    run: ResolvedRun
    cluster: Cluster
    plan: StepPlan

    @property
    def fullest(self) -> tuple[int, PlannedMemory]:
        """Index of the pipeline stage whose ranks hold most, and the memory of one of them."""
        return max(enumerate(self.plan.held), key=lambda stage: stage[1].nbytes)

    @property
    def fits(self) -> bool:
        """True if the planned memory fits a device. A real device needs several gigabytes more than is planned."""
        return self.plan.memory_bytes <= self.cluster.datasheet.accelerator.memory_bytes

    @property
    def mfu(self) -> float:
        """Share of the datasheet's peak that the model's own FLOPs take."""
        return self.plan.mfu(self.cluster.datasheet.peak_flops)

    @property
    def bubble_by_formula(self) -> float | None:
        """Bubble with equal stages and free sends. None if no share of a step is published for this schedule."""
        layout = self.plan.layout
        if layout.schedule.startswith("zero_bubble"):
            return None
        return bubble_fraction(layout.mesh.pp, layout.micro_batches, layout.chunks)

    @property
    def training_tokens(self) -> int:
        """Number of tokens of the whole run."""
        asked = self.run.training.steps * self.run.tokens_per_step
        return min(asked, self.run.training.tokens or asked)

    @property
    def training(self) -> Training:
        """The whole run at the pace of the plan, with the errors of plans."""
        return Training(
            tokens=self.training_tokens,
            tokens_per_step=self.run.tokens_per_step,
            step_seconds=self.plan.step_seconds,
            spread=spread_of_plan(self.run.model),
            devices=self.cluster.size,
        )

    def link(self, axis: str) -> Link:
        """Link of an axis, with the bandwidth of one rank."""
        return self.cluster.network.link(self.plan.layout.mesh, axis)

    def to_dict(self) -> dict[str, Any]:
        """All figures as plain values for JSON."""
        planned, mesh = self.plan, self.plan.layout.mesh
        stage, held = self.fullest
        return {
            "gpu": self.cluster.datasheet.accelerator.name,
            "gpu_memory_bytes": self.cluster.datasheet.accelerator.memory_bytes,
            "peak_flops": self.cluster.datasheet.peak_flops,
            "products_flops": self.cluster.datasheet.products_flops,
            "nodes": self.cluster.nodes,
            "gpus_per_node": self.cluster.gpus_per_node,
            "optimizations": [str(spec) for spec in self.run.optimizations],
            "parameters": planned.parameters,
            "mesh": {axis: mesh.degree(axis) for axis in AXES},
            "layout": {key: value for key, value in asdict(planned.layout).items() if key != "mesh"},
            "micro_batches": planned.layout.micro_batches,
            "fullest_stage": stage,
            "rank_bytes": {**_parts(held), "total": held.nbytes},
            "fits": self.fits,
            "stages": [{**_parts(one), "parameters": one.parameters} for one in planned.held],
            "sent": {axis: self._sent(axis, count) for axis, count in planned.sent_bytes.items()},
            "bubble_by_formula": self.bubble_by_formula,
            "bubble_played": planned.bubble,
            "step_seconds": planned.step_seconds,
            "tokens_per_step": self.run.tokens_per_step,
            "tokens_per_second": planned.tokens_per_second,
            "executed_flops": planned.executed_flops,
            "mfu": self.mfu,
            "hfu": planned.executed_flops / self.cluster.datasheet.peak_flops,
            "training_tokens": self.training_tokens,
            "training_seconds": planned.training_seconds(self.training_tokens),
            "training": self.training.to_dict(),
        }

    def _sent(self, axis: str, sent_bytes: float) -> dict[str, Any]:
        link, mesh = self.link(axis), self.plan.layout.mesh
        return {
            "bytes": sent_bytes,
            "link": link.name,
            "bandwidth_bytes": link.bandwidth_bytes,
            "inside_node": inside_node(mesh, axis, self.cluster.gpus_per_node),
        }


def project(run: Run, cluster: Cluster) -> Projection:
    """Plan one step of `run` on `cluster`. Raises `UsageError` if the run cannot be divided or planned."""
    there = run.with_vocabulary().model_copy(update={"device": "cuda", "ranks": cluster.size})
    _known_shape(there.model)
    mesh = mesh_of(there)
    if mesh.size != cluster.size:
        raise UsageError(f"no technique divides the step among {cluster.size} GPUs; add one, such as data_parallel")
    layout = Layout(mesh, there.training.batch_size, there.training.batch_size // mesh.dp)
    for one in optimizations_of(there):
        layout = one.lay_out(layout)
    run = resolve_run(there)
    check(run, cluster.machine)
    planned = plan(there.model, layout, cluster.network, cluster.datasheet.products_flops)
    return Projection(run, cluster, planned)


def is_planned(model: ModelConfig) -> bool:
    """True if the closed forms of a plan cover a model."""
    try:
        _known_shape(model)
    except UsageError:
        return False
    return True


def _known_shape(model: ModelConfig) -> None:
    """Raise `UsageError` for a model that the closed forms do not cover."""
    unlike = (
        ("n_expert", model.n_expert is not None),
        ("n_kv_head", model.kv_heads != model.n_head),
        ("n_head_dim", model.heads_width != model.n_embd),
        ("qkv_bias", model.has_qkv_bias != model.bias),
        ("n_hidden", model.activation != "swiglu" and model.hidden != 4 * model.n_embd),
        ("activation", model.activation == "swiglu"),
    )
    for key, differs in unlike:
        if differs:
            raise UsageError(
                f"a plan for other machines supports GPT-2's block only; leave out model.{key}={getattr(model, key)}"
            )


def _parts(held: PlannedMemory) -> dict[str, float]:
    return {part: getattr(held, part) for part in PARTS}
