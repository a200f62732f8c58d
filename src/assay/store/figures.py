"""Figures of a run, from its own process or from its event log, and the record that is built from them.

`result_of` is the only builder of a `RunResult`. A process that measures a run knows its figures, and adds the facts
that only its memory has. For a process that ended without a result the same figures come from its events.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from assay.records.events import EvaluationEvent
from assay.records.evidence import Evidence, ValueProof
from assay.records.run import RunResult
from assay.records.status import Status
from assay.records.timing import Block, Quartiles
from assay.store import history
from assay.store.event_log import Event
from assay.store.run_folder import RunSpec
from assay.store.spread import loss_spread


@dataclass
class RunFigures:
    """Figures of a run so far. Totals are over all its processes; times are those of its present mesh."""

    steps: int = 0
    tokens: int = 0
    skipped_steps: int = 0
    train_loss: float | None = None
    """Loss of the last step, in nats per token."""
    loss_spread: float | None = None
    """Deviation of the last losses about their line (`store.spread`)."""
    evaluation: EvaluationEvent | None = None
    """Last evaluation."""
    first_step_seconds: float | None = None
    step_seconds: Quartiles | None = None
    """Seconds of the steady steps."""
    step_tokens: int | None = None
    """Mean tokens of a steady step, as counted."""
    split_tokens: int | None = None
    """Tokens of the training text; None in logs of earlier versions."""
    data_wait_share: float | None = None
    """Share of the steady steps' seconds in which the host waited for its batch."""
    blocks: Sequence[Block] = ()
    evidence: Sequence[Evidence] = ()
    values: ValueProof | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Facts that only some runs have, by name."""

    @classmethod
    def of_events(cls, events: Sequence[Event]) -> Self:
        """Return the figures that an event log gives."""
        steps, evaluations = history.steps(events), history.evaluations(events)
        steady = [step for step in history.steps(history.of_last_mesh(events)) if step.phase == "steady"]
        extra = {"routers": history.routers(events), "notes": history.notes(events)}
        return cls(
            steps=steps[-1].step + 1 if steps else 0,
            tokens=sum(step.tokens for step in steps),
            skipped_steps=sum(step.skipped for step in steps),
            train_loss=steps[-1].loss if steps else None,
            loss_spread=loss_spread([step.loss for step in steps]),
            evaluation=evaluations[-1] if evaluations else None,
            first_step_seconds=next((step.seconds for step in steps if step.phase == "first_step"), None),
            step_seconds=Quartiles.of([step.seconds for step in steady]),
            step_tokens=history.step_tokens(steady),
            split_tokens=history.split_tokens(events),
            data_wait_share=history.data_wait_share(steady),
            blocks=history.blocks(events),
            evidence=history.evidence(events),
            values=history.values(events),
            extra={name: value for name, value in extra.items() if value},
        )

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of a steady step over the median seconds of one."""
        if self.step_seconds is None or self.step_tokens is None:
            return None
        return self.step_tokens / self.step_seconds.median

    @property
    def epoch_seconds(self) -> float | None:
        """Seconds of one pass over the training text."""
        speed = self.tokens_per_second
        return None if speed is None or self.split_tokens is None else self.split_tokens / speed


def result_of(spec: RunSpec, status: Status, reason: str | None, figures: RunFigures, **facts: Any) -> RunResult:
    """Build the record of a run; `facts` are further fields of it, such as `memory`."""
    seen = figures.evaluation
    return RunResult(
        run=spec.id,
        status=status,
        reason=reason,
        created=spec.created,
        identity=spec.identity,
        preset=spec.preset,
        config=spec.config,
        predicted=spec.predicted,
        steps=figures.steps,
        tokens=figures.tokens,
        skipped_steps=figures.skipped_steps,
        train_loss=figures.train_loss,
        loss_spread=figures.loss_spread,
        val_loss=seen.loss if seen else None,
        val_perplexity=seen.perplexity if seen else None,
        val_bits_per_byte=seen.bits_per_byte if seen else None,
        val_targets=seen.targets if seen else None,
        val_split_targets=seen.split_targets if seen else None,
        val_standard_error=seen.standard_error if seen else None,
        tokens_per_second=figures.tokens_per_second,
        step_seconds=figures.step_seconds,
        epoch_seconds=figures.epoch_seconds,
        first_step_seconds=figures.first_step_seconds,
        data_wait_share=figures.data_wait_share,
        blocks=tuple(figures.blocks),
        evidence=tuple(figures.evidence),
        values=figures.values,
        extra=figures.extra,
        **facts,
    )
