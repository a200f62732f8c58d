"""The estimator's prediction of a run's figures."""

from assay.records.base import Record
from assay.records.ranks import Sent


class PredictedRank(Record):
    """The estimator's prediction for one rank."""

    tensors_peak_bytes: int
    sent_bytes: int
    saved_bytes: int | None = None
    sent: tuple[Sent, ...] = ()
    """Payload by collective and axis; empty in older records."""
    idle_share: float | None = None
    """Idle share of a simulated pipeline: its stages take time in proportion to their FLOPs, and its sends are free."""


class Predicted(Record):
    """The estimator's prediction of a result's figures, and FLOPs. On several ranks, of the rank that holds most."""

    tensors_peak_bytes: int | None = None
    tensors_peak_instant: str | None = None
    library_scratch_bytes: int | None = None
    """Upper bound: a library may take less, or none while the tensors are at their peak."""
    reserved_peak_bytes: int | None = None
    process_peak_bytes: int | None = None
    heap_peak_bytes: int | None = None
    allocations: int | None = None
    saved_bytes: int | None = None
    step_flops: int | None = None
    """FLOPs executed by one optimizer step, recomputation included."""
    step_seconds: float | None = None
    """Seconds from timed steps of few blocks, or from measured rates of this machine and, on several ranks, of its
    link; None if these are unknown."""
    step_seconds_margin: float | None = None
    """Half of the 95 % interval relative to `step_seconds`, if steps were timed; None for a roofline."""
    roofline_seconds: float | None = None
    """Seconds of the work at measured rates; None in older records, whose `step_seconds` is that."""
    ranks: tuple[PredictedRank, ...] = ()
    """Prediction for each rank; empty on one rank."""
    bubble_share: float | None = None
    """Idle share of a pipeline with equal stages by its schedule's formula, (p−1)/(vm + p−1) or a variant."""

    @property
    def work_seconds(self) -> float | None:
        """Seconds of the work at measured rates, of a record of any age; None if the rates are unknown."""
        if self.roofline_seconds is None and self.step_seconds_margin is None:
            return self.step_seconds
        return self.roofline_seconds
