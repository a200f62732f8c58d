"""The record of one run: the schema of `result.json`, of the store's rows and of ``--json``.

Every figure is in a base unit that its name states. `None` means that the figure is not available, never zero.
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from assay.config.run import ResolvedRun
from assay.records.base import Record
from assay.records.environment import Environment
from assay.records.events import RouterLayer
from assay.records.evidence import Evidence, ValueProof
from assay.records.gradients import GradientProbe, ModuleGradient
from assay.records.prediction import Memory, Predicted
from assay.records.ranks import RankResult
from assay.records.status import Status
from assay.records.timing import Block, Quartiles


class SampledText(Record):
    """A short text that the trained model wrote when its run had ended."""

    prompt: str
    text: str
    """The continuation of the prompt, at most 200 characters."""
    temperature: float
    seed: int


class _Sparse(Record):
    """A record that writes only the fields that were given; those of a later version stay in it."""

    model_config = ConfigDict(extra="allow", ser_json_inf_nan="null")

    @model_serializer(mode="wrap")
    def _given(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in write(self).items() if name in self.model_fields_set}


class Branch(Record):
    """The checkpoint of another run with which a run began."""

    run: str
    """Id of the other run."""
    step: int
    """Number of steps that were done."""


class TraceSummary(_Sparse):
    """Summary of the traced step."""

    contractions: Mapping[str, Mapping[str, int]] = Field(default_factory=dict)
    """Number of contractions of each dtype, by phase."""
    flops: Mapping[str, int] = Field(default_factory=dict)
    """FLOPs of each phase."""
    forwards: int = 0
    saved_bytes: Mapping[str, int] = Field(default_factory=dict)
    parameter_bytes: int = 0
    gradient_bytes: int = 0
    optimizer_state_bytes: int = 0
    shared_parameters: tuple[tuple[str, ...], ...] = ()
    synchronizations: Mapping[str, int] = Field(default_factory=dict)
    """Number of reads of each kind in which the host waited for the device."""


class Extra(_Sparse):
    """Facts that only some runs have."""

    trace: TraceSummary | None = None
    routers: tuple[RouterLayer, ...] = ()
    """Routing statistics of each layer between the last two evaluations."""
    loss_scale: float | None = None
    """Loss scale of the last step, if losses are scaled."""
    counters: Mapping[str, int] = Field(default_factory=dict)
    """Number of steps and of evaluations whose rows were held against the slow rule."""
    notes: tuple[str, ...] = ()
    """Sentences for the user."""

    @classmethod
    def of(cls, **facts: Any) -> "Extra":
        """Return the facts that are there, of which empty ones are left out."""
        return cls(**{name: fact for name, fact in facts.items() if fact})


# More than 20 fields: it is the published record; users, pages and the index read its figures by these flat names.
class RunResult(Record):
    """The complete record of one run. Its own losses that are not finite are null in JSON, and read as None."""

    model_config = ConfigDict(ser_json_inf_nan="null")

    run: str
    """The run's id, which is its folder's name."""
    status: Status
    reason: str | None = None
    """One sentence for every status except `done`."""
    created: str
    """UTC, ISO 8601."""
    identity: str
    """Hash of the canonical configuration."""
    preset: str | None = None
    """Preset or file from which the configuration was loaded."""
    config: ResolvedRun
    branch: Branch | None = None
    """Run and step that this run continues as one of its own; None if it began with initial weights."""
    steps: int = 0
    tokens: int = 0
    documents: int | None = None
    """Documents of which training has read a token, a repeated one each time; None without `streaming`."""
    parameters: int | None = None
    train_loss: float | None = None
    """Loss of the last step, averaged over its tokens."""
    loss_spread: float | None = None
    """Standard deviation of the training losses of the last tenth of the steps about their least-squares line."""
    gradients: tuple[ModuleGradient, ...] = ()
    """Scale of each module's gradient and weights, in a discarded step after the last one; empty on several ranks."""
    gradient_probe: GradientProbe | None = None
    """Agreement of the gradients of micro-batches after the last step; None unless `training.gradient_probe` asks."""
    val_loss: float | None = None
    val_perplexity: float | None = None
    val_bits_per_byte: float | None = None
    val_targets: int | None = None
    """Number of held-out tokens that were predicted for `val_loss`."""
    val_split_targets: int | None = None
    """Number of held-out tokens that can be predicted."""
    val_standard_error: float | None = None
    """Standard error of `val_loss` as an estimate for the whole held-out text; 0 if all of it was evaluated."""
    tokens_per_second: float | None = None
    """Tokens per step over the median seconds of a steady step."""
    step_seconds: Quartiles | None = None
    epoch_seconds: float | None = None
    """Seconds of one pass over the training text, at `tokens_per_second`."""
    data_wait_share: float | None = None
    """Share of the steady steps' seconds in which the host waited for its batch; on several ranks, the first rank's."""
    phase_seconds: Mapping[str, float] = Field(default_factory=dict)
    """Seconds of each phase; they sum to the wall time of the last process."""
    memory: Memory = Field(default_factory=Memory)
    missing: Mapping[str, str] = Field(default_factory=dict)
    """Figures that this system does not tell, each with the reason; empty in records older than this field."""
    ranks: tuple[RankResult, ...] = ()
    """Record of each rank; empty on one rank. `memory` has the highest figures of all ranks."""
    predicted: Predicted | None = None
    evidence: tuple[Evidence, ...] = ()
    values: ValueProof | None = None
    """Result of the value check; None in records older than it, and if a run ended before it."""
    proven_until: Literal["beginning", "end"] | None = None
    """`end` if a step traced after the last checkpoint showed the same; None without evidence and in older records."""
    environment: Environment | None = None
    sample: SampledText | None = None
    """A text of the trained model; None for cells of studies, larger models, several ranks, and older records."""
    blocks: tuple[Block, ...] = ()
    first_step_seconds: float | None = None
    skipped_steps: int = 0
    """Updates that were skipped because a gradient was not finite (fp16)."""
    extra: Extra = Field(default_factory=Extra)
