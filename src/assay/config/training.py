"""Settings of training: batch, schedule, budget, evaluation and checkpoints."""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from assay.config.base import Setting

Momentum = Annotated[float, Field(ge=0.0, lt=1.0)]


# More than 20 fields: users know them as the one section `training` of a file, and by these flat keys.
class TrainingConfig(Setting):
    """Settings of training. An optimizer step uses `batch_size` sequences, however micro-batches and ranks divide
    them."""

    batch_size: PositiveInt = 12
    """Sequences per optimizer step."""
    steps: PositiveInt = 2000
    """Optimizer steps."""
    tokens: PositiveInt | None = None
    """Stop, resumably, after training on this many tokens."""
    seconds: PositiveFloat | None = None
    """Stop, resumably, after this many seconds of training."""
    target_loss: PositiveFloat | None = None
    """Stop when the loss of an evaluation is at or below this value."""

    learning_rate: PositiveFloat = 1e-3
    """Largest learning rate, after warm-up."""
    min_learning_rate: NonNegativeFloat = 1e-4
    """Learning rate at the end of the cosine schedule, from step `decay_steps` on."""
    warmup_steps: NonNegativeInt = 100
    """Steps in which the learning rate rises linearly to its largest value."""
    decay_steps: PositiveInt | None = None
    """Step, counted from 0, at which the cosine schedule reaches `min_learning_rate`. None: `steps`, so that the step
    after the last would have it, as in nanoGPT."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Learning rate after warm-up: a cosine, or constant."""
    weight_decay: NonNegativeFloat = 0.1
    """Decoupled weight decay of matrices and embeddings."""
    beta1: Momentum = 0.9
    """Decay of the optimizer's mean of gradients."""
    beta2: Momentum = 0.99
    """Decay of the optimizer's mean of squared gradients."""
    epsilon: PositiveFloat = 1e-8
    """Number added to the root of the mean square, so that no update divides by zero."""
    gradient_clip: NonNegativeFloat = 1.0
    """Largest global gradient norm; 0 turns clipping off."""

    eval_interval: NonNegativeInt = 250
    """Steps between evaluations; 0 evaluates only at the end."""
    eval_batches: PositiveInt | None = 32
    """Number of validation batches per evaluation, always the same and spread over the split. None: the whole split."""
    checkpoint_interval: NonNegativeInt = 0
    """Steps between checkpoints; 0 saves only at the end and on an interrupt."""
    check_values: bool = True
    """Compare losses, gradients and updates of first, drawn and last steps with a baseline, in another process."""
    gradient_probe: Annotated[int, Field(ge=0, le=1000)] = 0
    """Micro-batches of `batch_size` sequences whose gradients are compared after the last step; 0 compares none.

    The comparison is that of `assay gradients`: of the plain model, at the weights that the run trained. It is untimed
    and updates nothing. It needs 24 bytes a parameter and the activations of a micro-batch, on the CPU.
    """
    measure_memory: bool = True
    """Run one untimed, discarded step at the end to measure memory."""
    read_every: PositiveInt | None = None
    """Steps whose loss and norms the host reads together, without waiting before. None: 10 on a GPU, else 1."""

    @model_validator(mode="after")
    def _schedule_is_possible(self) -> Self:
        if self.min_learning_rate > self.learning_rate:
            raise ValueError(f"min_learning_rate={self.min_learning_rate} is above learning_rate={self.learning_rate}")
        if self.gradient_probe == 1:
            raise ValueError("gradient_probe=1 has no two micro-batches to compare; give at least 2, or 0 for none")
        return self
