"""Events of a run, as its log and its parent receive them, and the words that grant its turns.

Each event is one JSON object, whose kind is under the key "event". An event of another kind, or with more fields, is
accepted, because a later version may have written it. An event without a field that its readers need is damaged.
"""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StrictBool, StrictStr

from assay.records.base import Record
from assay.records.timing import Block

GO, AGAIN = "go", "again"
"""Words that grant a turn: the next piece of work, or one more timed block."""

STOP = "stop"
"""Word that requests a stop where no signal can (`platforms.SIGNALS_STOP`)."""

Count = Annotated[int, Field(strict=True, gt=-(2**63), lt=2**63)]
"""An integer that fits a column of SQLite."""
Number = Annotated[float, Field(strict=True)]


class RunEvent(Record):
    """One event of a run."""

    model_config = ConfigDict(extra="allow")

    event: StrictStr


class StartEvent(RunEvent):
    """A process begins or resumes the run."""

    event: Literal["start"]
    resumed_at: Count = 0
    """Number of steps that its checkpoint had done."""
    mesh: str | None = None
    split_tokens: Count | None = None
    """Tokens of the training text; None in logs of earlier versions."""
    forked: bool | None = None
    """True if the process was forked from a server; None in logs of earlier versions."""


class StepEvent(RunEvent):
    """One optimizer step."""

    event: Literal["step"]
    step: Count
    """Index of the step, from 0."""
    loss: Number | None
    """Loss in nats per token; None if it was not finite."""
    seconds: Number
    tokens: Count
    data_seconds: Number | None = None
    """Part of `seconds` in which the host waited for its batch; None in logs of earlier versions."""
    learning_rate: float | None = None
    log_gradient_norm: float | None = None
    """Natural logarithm of the global norm before clipping."""
    activation_norms: tuple[float | None, ...] = ()
    """Norms of the first and the last block's output."""
    phase: str | None = None
    skipped: bool = False
    loss_scale: float | None = None


class EvaluationEvent(RunEvent):
    """One evaluation on held-out text."""

    event: Literal["evaluation"]
    step: Count
    """Number of optimizer steps done before it."""
    loss: Number | None
    perplexity: Number | None
    bits_per_byte: Number | None
    targets: int | None = None
    split_targets: int | None = None
    standard_error: float | None = None


class EvidenceEvent(RunEvent):
    """Result of one optimization's proof."""

    event: Literal["evidence"]
    optimization: StrictStr
    observed: StrictStr
    verdict: StrictBool


class BlockEvent(RunEvent):
    """One timed block."""

    event: Literal["block"]
    steps: Count
    seconds: Number
    median_step_seconds: Number
    tokens: Count
    process_peak_bytes: Count | None

    def block(self) -> Block:
        """Return the block. Raises `ValidationError` if this version cannot read one of its fields."""
        return Block.of(self.model_dump())


class RouterLayer(Record):
    """Routing statistics of one layer of a mixture of experts."""

    model_config = ConfigDict(extra="allow", ser_json_inf_nan="null")

    tokens: tuple[int, ...]
    """Number of times each expert was chosen, dropped choices included."""
    dropped: float | None
    """Share of the choices that were dropped because the expert was full."""
    balance: float | None
    """Load-balancing loss without its coefficient; 1 if all is even."""


class RouterEvent(RunEvent):
    """Routing statistics of a mixture of experts since the evaluation before, by layer."""

    event: Literal["router"]
    layers: tuple[RouterLayer, ...]


class ValuesEvent(RunEvent):
    """Result of the value check."""

    event: Literal["values"]
    proof: Any = None


class PhaseEvent(RunEvent):
    """The process enters a phase."""

    event: Literal["phase"]
    name: StrictStr


class YieldEvent(RunEvent):
    """The process waits for a turn; it is sent to the parent only."""

    event: Literal["yield"]
    next: StrictStr


class CheckpointEvent(RunEvent):
    """A checkpoint is complete."""

    event: Literal["checkpoint"]
    step: Count


class NoteEvent(RunEvent):
    """A sentence for the user."""

    event: Literal["note"]
    text: StrictStr


KINDS: dict[str, type[RunEvent]] = {
    "start": StartEvent,
    "step": StepEvent,
    "evaluation": EvaluationEvent,
    "evidence": EvidenceEvent,
    "block": BlockEvent,
    "router": RouterEvent,
    "values": ValuesEvent,
    "phase": PhaseEvent,
    "yield": YieldEvent,
    "checkpoint": CheckpointEvent,
    "note": NoteEvent,
}
"""Types of events by kind; any other kind is a `RunEvent`."""


def typed(event: dict[str, Any]) -> RunEvent:
    """Return an event of its kind. Raises `ValidationError` if a field that its readers need is missing or wrong."""
    return KINDS.get(event.get("event", ""), RunEvent).model_validate(event)
