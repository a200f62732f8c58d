"""Words on a step beside the memory of a device: the batch, the need and whether it fits."""

from assay.estimator.memory_fit import Fit, StepBatch
from assay.report.predicted.training import span
from assay.units import format_bytes


def batch_words(batch: StepBatch) -> str:
    """Return ``"8 sequences of 1,024 tokens"``, with the micro-batches if there are several."""
    what = "sequence" if batch.sequences == 1 else "sequences"
    parts = f", in {batch.micro_batches} micro-batches" if batch.micro_batches > 1 else ""
    return f"{batch.sequences:,} {what} of {batch.context:,} tokens{parts}"


def fit_words(fit: Fit) -> str:
    """Return whether a step fits, and its need beside the memory of the device."""
    need = span(format_bytes(fit.need.low), format_bytes(fit.need.high))
    return f"{fit.verdict}: {need} of {format_bytes(fit.memory_bytes)}, with {batch_words(fit.batch)}"
