"""What is known of one rank of a run: the part of `result.json` that only runs over several ranks have."""

from collections.abc import Mapping

from pydantic import ConfigDict

from assay.config.base import Frozen


class Record(Frozen):
    """Read back from JSON, where tuples are lists and enumerations are text."""

    model_config = ConfigDict(strict=False)


class Sent(Record):
    """What a rank hands to one collective along one mesh axis in a step."""

    collective: str
    axis: str
    count: int
    payload_bytes: int
    """Of the whole that is gathered, summed or sent."""


class Spent(Record):
    """How long one collective along one mesh axis was under way on a rank in a step, each call by itself."""

    collective: str
    """As in `Sent`, and `recv`."""
    axis: str
    count: int
    seconds: float
    """Summed over calls, of which several may be under way at once."""
    wait_seconds: float | None
    """Of these, until the last of the ranks had called; None where their clocks are not one."""


class Idle(Record):
    """What a rank of a pipeline did not compute between its line's first forward and last backward."""

    share: float
    """Of that time, the median over some steps after the run."""
    shares: tuple[float, ...]
    """By step."""
    processor_share: float | None
    """Processor time over wall time of the spans in which it computed; None on an accelerator."""
    comparable: bool
    """Whether every rank of the line had a core of its own, so that the share may be held against a formula."""

    @property
    def caveat(self) -> str:
        """In words; empty where the share is comparable."""
        return "" if self.comparable else "not comparable: a rank had no core of its own"


class RankResult(Record):
    """What one rank of a run held, and what it handed to the others."""

    rank: int
    place: Mapping[str, int]
    """Its index along each mesh axis."""
    tensors_peak_bytes: int | None = None
    process_peak_bytes: int | None = None
    parameter_bytes: int | None = None
    gradient_bytes: int | None = None
    optimizer_state_bytes: int | None = None
    sent: tuple[Sent, ...] = ()
    profiled_step_seconds: float | None = None
    """Of one step under the profiler, after the run."""
    communication_seconds: float | None = None
    """Of those, how many had a collective under way, waiting for late ranks included."""
    spent: tuple[Spent, ...] = ()
    """By collective and axis in the same step; nothing where the backend does not show each call."""
    idle: Idle | None = None
    """None without a pipeline, or where its ranks have no common clock."""

    @property
    def communication_share(self) -> float | None:
        """Of the profiled step."""
        if self.communication_seconds is None or not self.profiled_step_seconds:
            return None
        return self.communication_seconds / self.profiled_step_seconds

    @property
    def sent_bytes(self) -> int:
        """By all collectives together."""
        return sum(one.payload_bytes for one in self.sent)


class PredictedRank(Record):
    """What the estimator said of one rank."""

    tensors_peak_bytes: int
    sent_bytes: int
    idle_share: float | None = None
    """Of a pipeline played with unequal stages, by their FLOPs; sends are free."""
