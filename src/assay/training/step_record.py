"""One optimizer step in figures, and how far a run has come: plain values that the loop hands to whoever watches it."""

from dataclasses import dataclass

from assay.training.evaluation import Evaluation


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One optimizer step."""

    step: int
    """Counted from 0."""
    loss: float
    """Nats per token, over every micro-batch."""
    learning_rate: float
    log_gradient_norm: float
    """Natural logarithm of the global norm before clipping; not finite where the norm is 0 or not finite."""
    activation_norms: tuple[float, ...]
    """Of the first and the last block's output; empty without probes."""
    seconds: float
    tokens: int
    data_seconds: float = 0.0
    """Of these seconds, those in which the host waited for its batch."""
    skipped: bool = False
    """The update was left out because a scaled gradient was not finite."""
    finite: bool = True
    loss_scale: float = 1.0
    """By which the loss was multiplied before it was differentiated."""


@dataclass
class Position:
    """How far a run has come, over all its processes."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    """In training steps."""
    skipped_steps: int = 0
    train_loss: float | None = None
    """Of the last step."""
    evaluation: Evaluation | None = None

    def advance(self, record: StepRecord) -> None:
        """Count one more step."""
        self.step = record.step + 1
        self.tokens += record.tokens
        self.seconds += record.seconds
        self.skipped_steps += record.skipped
        self.train_loss = record.loss
