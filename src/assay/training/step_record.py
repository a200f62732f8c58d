"""Figures of one optimizer step, and the position of a run: plain values that the loop passes to its observer."""

from dataclasses import dataclass

from assay.config.run import TrainingConfig
from assay.training.evaluation import Evaluation
from assay.units import format_steps


@dataclass(frozen=True, slots=True)
class StepRecord:
    """Figures of one optimizer step."""

    step: int
    """Index of the step, from 0."""
    loss: float
    """Loss in nats per token, over all micro-batches and ranks."""
    learning_rate: float
    log_gradient_norm: float
    """Natural logarithm of the global norm before clipping; not finite if the norm is 0 or not finite."""
    activation_norms: tuple[float, ...]
    """Norms of the first and the last block's output; empty without probes."""
    seconds: float
    tokens: int
    """Targets that the loss counted, over all micro-batches and ranks."""
    targets: int
    """Targets of the step's rows, of which a loss of a user's own may leave some out."""
    data_seconds: float = 0.0
    """Part of `seconds` in which the host waited for its batch."""
    host_seconds: float | None = None
    """Part of `seconds` until the host had queued the step on a GPU; None on a CPU, which computes meanwhile."""
    device_seconds: float | None = None
    """Seconds of the step between two events of a GPU, of steps that are read together their mean."""
    skipped: bool = False
    """True if the update was skipped because a scaled gradient was not finite."""
    finite: bool = True
    loss_scale: float = 1.0
    """Factor by which the loss was multiplied before backward."""


@dataclass
class Position:
    """Progress of a run, over all its processes."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    """Seconds spent in training steps."""
    skipped_steps: int = 0
    train_loss: float | None = None
    """Loss of the last step, in nats per token."""
    evaluation: Evaluation | None = None

    def spent(self, training: TrainingConfig, counted: str = "tokens") -> str:
        """Return which budget of tokens or seconds is spent, in words; empty if none is. `counted` are the tokens."""
        if training.tokens is not None and self.tokens >= training.tokens:
            return f"the budget of {training.tokens} {counted} is reached after {format_steps(self.step)}"
        if training.seconds is not None and self.seconds >= training.seconds:
            return f"the budget of {training.seconds:g} seconds is reached after {format_steps(self.step)}"
        return ""

    def advance(self, record: StepRecord) -> None:
        """Add the figures of one more step."""
        self.step = record.step + 1
        self.tokens += record.tokens
        self.seconds += record.seconds
        self.skipped_steps += record.skipped
        self.train_loss = record.loss
