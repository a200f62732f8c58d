"""Layout of a step on many devices: its mesh, its shards, and its recomputation. Everything but the model.

Each technique of a run changes the layout, in the order in which they are applied, as `predict` changes the ledger of
one device. Plans for machines that are not available are made from the result.
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

from assay.config.mesh import Mesh
from assay.config.model import ModelConfig
from assay.cost import pipeline_schedules
from assay.cost.closed_forms import Recompute
from assay.cost.pipeline_schedules import Schedule
from assay.errors import UsageError

ScheduleName = Literal["gpipe", "one_f_one_b", "interleaved", "zero_bubble_h1", "zero_bubble_v"]


@dataclass(frozen=True)
class Layout:
    """The mesh, the division of a batch, and the tensors that each rank keeps."""

    mesh: Mesh
    batch: int
    """Sequences of a step, over all ranks."""
    micro_batch: int = 1
    schedule: ScheduleName = "one_f_one_b"
    chunks: int = 1
    """Chunks of the layers of a stage; more than one only when interleaved, two in a vee."""
    zero: Literal[0, 1, 2, 3] = 0
    sequence_parallel: bool = False
    recompute: Recompute = "none"
    dealt: tuple[int, ...] = ()
    """Number of layers of each stage, with one chunk each; empty: equally many."""

    @property
    def last_stage(self) -> int:
        """The stage with the logits: the last one, but in a vee the first."""
        return 0 if self.schedule == "zero_bubble_v" else self.mesh.pp - 1

    def layers(self, model: ModelConfig) -> tuple[float, ...]:
        """Number of layers of each stage."""
        return self.dealt or (model.n_layer / self.mesh.pp,) * self.mesh.pp

    def cut(self, parts: int) -> Self:
        """The layout with micro-batches cut into `parts` equal parts. Raises `UsageError` if they do not divide."""
        if self.micro_batch % parts:
            raise UsageError(
                f"{self.micro_batch} sequences of a rank cannot be cut into {parts} micro-batches; "
                f"make training.batch_size={self.batch} a multiple of dp × micro-batches = {self.mesh.dp * parts}"
            )
        return replace(self, micro_batch=self.micro_batch // parts)

    @property
    def micro_batches(self) -> int:
        """Number of micro-batches of each pipeline. Raises `UsageError` if the batch does not divide."""
        share = self.mesh.dp * self.micro_batch
        if self.batch % share:
            raise UsageError(
                f"a batch of {self.batch} cannot be divided among dp={self.mesh.dp} in micro-batches of "
                f"{self.micro_batch}; make it a multiple of {share}"
            )
        return self.batch // share

    def order(self) -> Schedule:
        """The schedule of the pipeline. Raises `UsageError` if it does not exist."""
        stages, micro_batches = self.mesh.pp, self.micro_batches
        if self.schedule == "zero_bubble_v" and self.chunks == 2:
            return pipeline_schedules.zero_bubble_v(stages, micro_batches)
        if self.schedule == "zero_bubble_v":
            raise UsageError(
                f"the schedule {self.schedule!r} has two chunks per stage, not {self.chunks}; set chunks=2"
            )
        if self.schedule != "interleaved":
            if self.chunks > 1:
                raise UsageError(
                    f"the schedule {self.schedule!r} has one chunk per stage; choose 'interleaved' for more"
                )
            return {
                "gpipe": pipeline_schedules.gpipe,
                "one_f_one_b": pipeline_schedules.one_f_one_b,
                "zero_bubble_h1": pipeline_schedules.zero_bubble_h1,
            }[self.schedule](stages, micro_batches)
        try:
            return pipeline_schedules.interleaved_1f1b(stages, micro_batches, self.chunks)
        except ValueError as error:
            raise UsageError(str(error)) from error

    def check(self, model: ModelConfig) -> None:
        """Raise `UsageError` if the mesh or the stages do not divide the model."""
        parts = 1 if self.dealt else self.mesh.pp * self.chunks
        if self.dealt and (len(self.dealt), sum(self.dealt)) != (self.mesh.pp, model.n_layer):
            raise UsageError(f"{model.n_layer} layers cannot be divided as {self.dealt} among {self.mesh.pp} stages")
        for degree, what, count in (
            (parts, "n_layer", model.n_layer),
            (self.mesh.tp, "n_head", model.n_head),
            (self.mesh.cp, "context_length", model.context_length),
        ):
            if count % degree:
                raise UsageError(f"{what}={count} is not divisible by {degree}; choose another {what} or degree")
