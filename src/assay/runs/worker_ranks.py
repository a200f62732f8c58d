"""What every rank of a run found, on the record of the first: memory, what it handed to collectives, and how long."""

from collections import Counter

from assay.measure.travel import travel
from assay.parallel.ranks import Ranks
from assay.runs.record import RankResult, Sent
from assay.runs.worker_result import Findings
from assay.step.trace import Trace
from assay.training.loop import Loop


def every_rank(loop: Loop, findings: Findings, ranks: Ranks) -> tuple[RankResult, ...]:
    """The same on each rank, in order; all must call it. One more step is thrown away."""
    profiled = travel(loop.step.program.device, loop.discard_step)
    trace = findings.trace
    own = RankResult(
        rank=ranks.rank,
        place={axis: index for axis, index in ranks.place.items() if ranks.layout.degree(axis) > 1},
        tensors_peak_bytes=findings.memory.tensors_peak_bytes,
        process_peak_bytes=findings.process_peak_bytes,
        parameter_bytes=trace.parameter_bytes if trace else None,
        gradient_bytes=trace.gradient_bytes if trace else None,
        optimizer_state_bytes=trace.optimizer_state_bytes if trace else None,
        sent=_sent(trace) if trace else (),
        profiled_step_seconds=profiled.step_seconds,
        communication_seconds=profiled.under_way_seconds,
    )
    return tuple(RankResult.model_validate_json(said) for said in ranks.gather(own.model_dump_json()))


def _sent(trace: Trace) -> tuple[Sent, ...]:
    counts: Counter[tuple[str, str]] = Counter()
    payloads: Counter[tuple[str, str]] = Counter()
    for one in trace.communications:
        counts[one.collective, one.axis] += one.count
        payloads[one.collective, one.axis] += one.payload_bytes
    return tuple(
        Sent(collective=collective, axis=axis, count=count, payload_bytes=payloads[collective, axis])
        for (collective, axis), count in sorted(counts.items())
    )
