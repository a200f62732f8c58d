"""Communication: payload of the collectives of a step."""

from assay.analysis.metrics.base import Metric
from assay.records.memory import highest

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
