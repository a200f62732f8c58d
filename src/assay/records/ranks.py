"""The record of one rank: the part of `result.json` that only runs on several ranks have."""

from collections.abc import Mapping

from assay.records.base import Record


class Sent(Record):
    """Payload of one collective along one mesh axis on a rank in a step."""

    collective: str
    axis: str
    count: int = 0
    payload_bytes: int = 0
    """Bytes of the whole tensors that are gathered, reduced or sent, summed over calls."""


class Spent(Record):
    """Time of one collective along one mesh axis on a rank in a step, with each call timed separately."""

    collective: str
    """Name as in `Sent`, and in addition `recv`."""
    axis: str
    count: int
    seconds: float
    """Seconds in communication, summed over calls that may overlap."""
    wait_seconds: float | None
    """Part of `seconds` until the last rank has called; None if the ranks have no common clock."""


class Idle(Record):
    """Time in which a rank of a pipeline did not compute, from the pipeline's first forward to its last backward."""

    share: float
    """Idle share of that time, the median over some steps after the run."""
    shares: tuple[float, ...]
    """Idle share of each of those steps."""
    processor_share: float | None
    """Processor time over wall time of the spans in which the rank computed; None on an accelerator."""
    comparable: bool
    """True if every rank of the pipeline had a core of its own, so that the share can be compared with a formula."""

    @property
    def caveat(self) -> str:
        """The caveat in words; empty if the share is comparable."""
        return "" if self.comparable else "not comparable: a rank had no core of its own"


class RankResult(Record):
    """Memory of one rank of a run, and its communication."""

    rank: int
    place: Mapping[str, int]
    """The rank's index along each mesh axis."""
    tensors_peak_bytes: int | None = None
    process_peak_bytes: int | None = None
    saved_bytes: int | None = None
    """Bytes saved for backward; None in older records."""
    parameter_bytes: int | None = None
    gradient_bytes: int | None = None
    optimizer_state_bytes: int | None = None
    sent: tuple[Sent, ...] = ()
    profiled_step_seconds: float | None = None
    """Seconds of one step under the profiler, after the run."""
    communication_seconds: float | None = None
    """Seconds of that step with at least one collective running, waiting for late ranks included."""
    spent: tuple[Spent, ...] = ()
    """Time of each collective and axis in the same step; empty if the backend does not show each call."""
    idle: Idle | None = None
    """Idle time; None without a pipeline, or if its ranks have no common clock."""

    @property
    def communication_share(self) -> float | None:
        """Share of the profiled step with a collective running."""
        if self.communication_seconds is None or not self.profiled_step_seconds:
            return None
        return self.communication_seconds / self.profiled_step_seconds

    @property
    def sent_bytes(self) -> int:
        """Payload of all collectives of a step."""
        return sum(one.payload_bytes for one in self.sent)
