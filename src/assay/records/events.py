"""Events of runs and studies, as their logs and their readers have them, and the words that grant a run's turns.

Each event is one JSON object, whose kind is under the key "event". An event of another kind, or with more fields, is
accepted, because a later version may have written it. An event without a field that its readers need is damaged.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, StrictBool, StrictStr

from assay.records.base import Record
from assay.records.evidence import Evidence
from assay.records.timing import Block, Round

GO, AGAIN = "go", "again"
"""Words that grant a turn: the next piece of work, or one more timed block."""

STOP = "stop"
"""Word that requests a stop where no signal can (`platforms.SIGNALS_STOP`)."""

Count = Annotated[int, Field(strict=True, gt=-(2**63), lt=2**63)]
"""An integer that fits a column of SQLite."""
Number = Annotated[float, Field(strict=True)]


class LogEvent(Record):
    """One event of a log."""

    model_config = ConfigDict(extra="allow")

    event: StrictStr

    def line(self) -> dict[str, Any]:
        """Return the event as the line of a log, with the fields that it was read with."""
        return self.model_dump(mode="json", exclude_unset=True)


class StartEvent(LogEvent):
    """A process begins or resumes the run."""

    event: Literal["start"]
    resumed_at: Count = 0
    """Number of steps that its checkpoint had done."""
    mesh: str | None = None
    time: float | None = None
    """Seconds since the epoch; None in logs of earlier versions."""
    split_tokens: Count | None = None
    """Tokens of the training text; None in logs of earlier versions."""
    forked: bool | None = None
    """True if the process was forked from a server; None in logs of earlier versions."""


class StepEvent(LogEvent):
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


class EvaluationEvent(LogEvent):
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


class EvidenceEvent(LogEvent):
    """Result of one optimization's proof."""

    event: Literal["evidence"]
    optimization: StrictStr
    observed: StrictStr
    verdict: StrictBool

    def evidence(self) -> Evidence:
        """Return the evidence."""
        return Evidence(optimization=self.optimization, observed=self.observed, verdict=self.verdict)


class BlockEvent(LogEvent):
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


class RouterEvent(LogEvent):
    """Routing statistics of a mixture of experts since the evaluation before, by layer."""

    event: Literal["router"]
    layers: tuple[RouterLayer, ...]


class ValuesEvent(LogEvent):
    """Result of the value check."""

    event: Literal["values"]
    proof: Any = None


class PhaseEvent(LogEvent):
    """The process enters a phase."""

    event: Literal["phase"]
    name: StrictStr


class YieldEvent(LogEvent):
    """The process waits for a turn; it is sent to the parent only."""

    event: Literal["yield"]
    next: StrictStr


class CheckpointEvent(LogEvent):
    """A checkpoint is complete."""

    event: Literal["checkpoint"]
    step: Count


class NoteEvent(LogEvent):
    """A sentence for the user."""

    event: Literal["note"]
    text: StrictStr


class ProgressEvent(LogEvent):
    """Parts of the present phase are done."""

    event: Literal["progress"]
    done: Count
    total: Count


class PrepareEvent(LogEvent):
    """A run is prepared; listeners are told, and no log has it."""

    event: Literal["prepare"]
    message: str
    fraction: float | None = None
    """Part of the preparation that is done; None for a remark."""


class BeginEvent(LogEvent):
    """A run is about to start; listeners are told, and no log has it."""

    event: Literal["run"]
    run: str = ""
    steps: int
    tokens_per_step: int = 0
    counted: str = "tokens"
    """Word for the tokens of a step."""
    eval_interval: int = 0
    model_flops: float | None = None
    """FLOPs of a step."""
    peak_flops: float | None = None
    """FLOPs in a second at the peak of the device."""
    pid: int | None = None
    """Process whose memory is that of the run."""


class InterruptingEvent(LogEvent):
    """The run or the study is asked to stop."""

    event: Literal["interrupting"]


class PlanEvent(LogEvent):
    """A study begins, or goes on."""

    event: Literal["plan"]


class RungEvent(LogEvent):
    """The rows of a search that run next."""

    event: Literal["rung"]
    rows: tuple[str, ...]


class RoundEvent(LogEvent):
    """A round of timed blocks has ended."""

    event: Literal["round"]
    round: Annotated[Round, BeforeValidator(lambda value: Round.model_validate(value, strict=False))]


class CellEvent(LogEvent):
    """An event of one cell of a study."""

    cell: StrictStr


class TurnEvent(CellEvent):
    """A cell has its turn."""

    event: Literal["turn"]
    piece: str = ""
    """The piece of work: `start`, `block` or `finish`."""
    number: int = 0
    """Number of the round, from 1; 0 for other pieces."""
    time: float | None = None
    """Seconds since the epoch; None in logs of earlier versions."""


class CellStartEvent(CellEvent):
    """The run of a cell begins."""

    event: Literal["cell_start"]
    run: StrictStr
    wave: Count


class CellPhaseEvent(CellEvent):
    """The run of a cell enters a phase."""

    event: Literal["cell_phase"]
    phase: str = ""


class CellEndEvent(CellEvent):
    """The run of a cell has ended."""

    event: Literal["cell_end"]
    run: StrictStr
    wave: Count
    status: str = ""
    time: float | None = None
    """Seconds since the epoch; None in logs of earlier versions."""


class OverEvent(LogEvent):
    """A study or a wave of it is over."""

    event: Literal["over"]
    ending: str = ""
    refused: str | None = None
    """Reason for which a wave cannot run."""


KINDS: dict[str, type[LogEvent]] = {
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
    "progress": ProgressEvent,
    "prepare": PrepareEvent,
    "run": BeginEvent,
    "interrupting": InterruptingEvent,
    "plan": PlanEvent,
    "rung": RungEvent,
    "round": RoundEvent,
    "turn": TurnEvent,
    "cell_start": CellStartEvent,
    "cell_phase": CellPhaseEvent,
    "cell_end": CellEndEvent,
    "over": OverEvent,
}
"""Types of events by kind; any other kind is a `LogEvent`."""


def event_of(event: dict[str, Any]) -> LogEvent:
    """Return an event of its kind. Raises `ValidationError` if a field that its readers need is missing or wrong."""
    return KINDS.get(event.get("event", ""), LogEvent).model_validate(event)
