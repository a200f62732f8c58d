"""Losses: on held-out text, and of the last step."""

from dataclasses import replace

from assay.analysis.metrics.base import Metric
from assay.config.run import ResolvedRun

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


def loss_of(run: ResolvedRun) -> Metric:
    """Return the loss by which rows of such a run are compared: that of validation, or of training if there is none.

    A user's own loss may have any unit, so its meaning names none.
    """
    if run.own_rows is None:
        return VAL_LOSS
    if run.own_rows.validation:
        return replace(VAL_LOSS, meaning="Mean of your loss over your validation batches after the last step, untimed.")
    said = "Your loss in the last step. Rows have equal batches. There are no validation batches."
    return replace(TRAIN_LOSS, shown=True, meaning=said)
