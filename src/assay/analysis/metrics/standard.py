"""The metrics of every comparison: memory, time, losses and communication."""

from dataclasses import replace

from assay.analysis.metrics.base import Metric
from assay.config.run import ResolvedRun
from assay.records.prediction import highest

TENSORS_PEAK_BYTES = Metric(
    name="tensors_peak_bytes",
    title="tensors, peak",
    unit="bytes",
    better="lower",
    kind="exact",
    meaning="The most bytes requested from torch's allocator at any instant of one optimizer step after the first, "
    "live tensors included. It is counted, not sampled, and repeats exactly, so its change needs no interval.",
    predicted=True,
    of=lambda result: result.memory.tensors_peak_bytes,
)

RESERVED_PEAK_BYTES = Metric(
    name="reserved_peak_bytes",
    title="reserved, peak",
    unit="bytes",
    better="lower",
    kind="exact",
    meaning="The most bytes that torch's caching allocator holds at any instant. A CPU has no such allocator.",
    shown=False,
    predicted=True,
    of=lambda result: result.memory.reserved_peak_bytes,
)

PROCESS_PEAK_BYTES = Metric(
    name="process_peak_bytes",
    title="process, peak",
    unit="bytes",
    better="lower",
    kind="timed",
    meaning="The peak of the process's resident anonymous memory in the step before the timed ones of a block, by the "
    "kernel's high-water mark. It includes the interpreter, the libraries and memory that the allocator keeps.",
    predicted=True,
    of=lambda result: result.memory.process_peak_bytes,
    of_block=lambda block: block.process_peak_bytes,
)


STEP_SECONDS = Metric(
    name="step_seconds",
    title="step time",
    unit="seconds",
    better="lower",
    kind="timed",
    meaning="The median optimizer step: its geometric mean over the timed blocks of each process and over processes. "
    "Evaluation, compilation, the trace and the memory pass are not part of it.",
    predicted=True,
    of=lambda result: result.speed.step_seconds.median if result.speed.step_seconds else None,
    of_block=lambda block: block.median_step_seconds,
)

TOKENS_PER_SECOND = Metric(
    name="tokens_per_second",
    title="tokens/s",
    unit="per_second",
    better="higher",
    kind="timed",
    meaning="Tokens of one optimizer step divided by the step time.",
    of_block=lambda block: block.tokens / block.steps / block.median_step_seconds,
    per_step=lambda run: run.tokens_per_step,
)


def rate_of(run: ResolvedRun) -> Metric:
    """Return the rate of such a run, which counts what its losses are means over."""
    said = f"{run.counted.capitalize()} of one optimizer step divided by the step time."
    return replace(TOKENS_PER_SECOND, title=f"{run.counted}/s", meaning=said)


VAL_LOSS = Metric(
    name="val_loss",
    title="validation loss",
    unit="nats",
    better="lower",
    kind="loss",
    meaning="Mean cross-entropy in nats per token on a fixed set of validation batches after the last step, untimed.",
    of=lambda result: result.loss.val_loss,
)

LOSS_SPREAD = Metric(
    name="loss_spread",
    title="loss spread",
    unit="nats",
    better="lower",
    kind="loss",
    meaning="Standard deviation of the training losses of the last tenth of the steps about their least-squares line.",
    shown=False,
    of=lambda result: result.loss.loss_spread,
)

TRAIN_LOSS = Metric(
    name="train_loss",
    title="training loss",
    unit="nats",
    better="lower",
    kind="loss",
    meaning="Mean cross-entropy in nats per token of the last step.",
    shown=False,
    of=lambda result: result.loss.train_loss,
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


SENT_BYTES = Metric(
    name="sent_bytes",
    title="communicated",
    unit="bytes",
    better="lower",
    kind="exact",
    meaning="Bytes of the tensors that all collectives of one step gather, reduce or send, on the rank with most.",
    shown=False,
    of=lambda result: highest(one.sent_bytes for one in result.ranks),
)
