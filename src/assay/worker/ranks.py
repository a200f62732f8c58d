"""Results of every rank in rank 0's record: memory, payload of collectives, and time in communication.

Times are measured in discarded steps after the run. In the first, calls of collectives are listed. The second runs
under the profiler, which does not report their axes. In a few more, the stages of a pipeline are timed.
"""

import json
from collections import Counter
from dataclasses import asdict

from assay.instruments.collective_times import CollectiveCall, TimedCalls, Travel, calls, collective_times, travel
from assay.instruments.pipeline_calls import Busy, busy, idle
from assay.parallel.process_rank import Ranks
from assay.records.ranks import Idle, RankResult, Sent, Spent
from assay.records.trace import Trace
from assay.training.loop import Loop
from assay.worker.result import RunFindings

_WATCHED_STEPS = 3
"""Steps over which the idle share's median is taken, because single steps differ."""


def every_rank(loop: Loop, findings: RunFindings, ranks: Ranks) -> tuple[RankResult, ...]:
    """Gather every rank's results, in order, on each rank. All ranks must call it. It discards more steps."""
    listed = calls(loop.step.program.parallel.mesh, loop.discard_step)
    ranks.meet()
    profiled = travel(loop.step.program.device, loop.discard_step)
    trace = findings.trace
    own = RankResult(
        rank=ranks.rank,
        place={axis: index for axis, index in ranks.place.items() if ranks.layout.degree(axis) > 1},
        tensors_peak_bytes=findings.memory.tensors_peak_bytes,
        process_peak_bytes=findings.process_peak_bytes,
        saved_bytes=trace.memory.saved_total_bytes if trace else None,
        parameter_bytes=trace.memory.parameter_bytes if trace else None,
        gradient_bytes=trace.memory.gradient_bytes if trace else None,
        optimizer_state_bytes=trace.memory.optimizer_state_bytes if trace else None,
        sent=_sent(trace) if trace else (),
        profiled_step_seconds=profiled.step_seconds,
        communication_seconds=profiled.under_way_seconds,
        spent=_spent(listed, profiled, ranks),
        idle=_idle(loop, ranks),
    )
    return tuple(RankResult.model_validate_json(said) for said in ranks.gather(own.model_dump_json()))


def _spent(listed: tuple[CollectiveCall, ...], profiled: Travel, ranks: Ranks) -> tuple[Spent, ...]:
    own = TimedCalls.of(listed, profiled.spans)
    everyone = [TimedCalls.from_json(said) for said in ranks.gather(own.to_json())]
    return collective_times(everyone, ranks.rank)


def _idle(loop: Loop, ranks: Ranks) -> Idle | None:
    """Idle time of this rank; None without a pipeline."""
    steps = []
    for _ in range(_WATCHED_STEPS if ranks.layout.degree("pp") > 1 else 0):
        ranks.meet()
        own = busy(loop.step.program.device, loop.discard_step)
        told = (json.loads(said) for said in ranks.gather(json.dumps(own and asdict(own))))
        steps.append([said and Busy(**said) for said in told])
    line = next(line for line in ranks.layout.groups("pp") if ranks.rank in line)
    return idle(steps, line).get(ranks.rank) if steps else None


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
