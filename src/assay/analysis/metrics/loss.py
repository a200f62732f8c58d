"""Losses: on held-out text, and of the last step."""

from assay.analysis.metrics.base import Metric

VAL_LOSS = Metric(
    name="val_loss",
    title="validation loss",
    unit="nats",
    better="lower",
    kind="loss",
    meaning="Mean cross-entropy in nats per token on a fixed set of validation batches after the last step, untimed.",
    of=lambda result: result.val_loss,
)

LOSS_SPREAD = Metric(
    name="loss_spread",
    title="loss spread",
    unit="nats",
    better="lower",
    kind="loss",
    meaning="Standard deviation of the training losses of the last tenth of the steps about their least-squares line.",
    shown=False,
    of=lambda result: result.loss_spread,
)

TRAIN_LOSS = Metric(
    name="train_loss",
    title="training loss",
    unit="nats",
    better="lower",
    kind="loss",
    meaning="Mean cross-entropy in nats per token of the last step.",
    shown=False,
    of=lambda result: result.train_loss,
)
