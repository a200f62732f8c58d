"""Compare two traces of one program: the step at a run's end must equal the step proven at its beginning.

Only counts that do not depend on the batch are compared. These are operators outside the update, elements written into
each parameter, compiled calls and graphs, collectives, batches and bytes held. Values and times are not compared. Nor
are the operators of clipping, which run only if the norm is above the limit, and data movement, which caches reduce in
later steps. How many rows end a document depends on the batch. So do the bytes that a mixture's experts save and
exchange, so with a mixture saved and communicated bytes are not compared.

A step must also leave torch's settings as they were before the run's first step. A setting that stays changes
evaluations, and whatever else the process computes. A model of a user's own may set what it likes.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from assay.config import ResolvedRun
from assay.records.trace import ENDED, Trace

_MOST = 3
"""Number of differences that are listed one by one."""


def differences(first: Trace, last: Trace, *, mixture: bool = False) -> str:
    """List the differences, each with both counts; empty if there is none."""
    found = [f"{name} {before} → {after}" for name, before, after in _differing(first, last, mixture)]
    more = f", and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return ", ".join(found[:_MOST]) + more


def _differing(first: Trace, last: Trace, mixture: bool) -> Iterator[tuple[str, Any, Any]]:
    for read in (_calls, _operators, _held, _written, *(() if mixture else (_bytes,))):
        before, after = read(first), read(last)
        for name in dict.fromkeys((*before, *after)):
            if before.get(name, 0) != after.get(name, 0):
                yield name, before.get(name, 0), after.get(name, 0)


def _calls(trace: Trace) -> Mapping[str, int]:
    return {
        "compiled calls": trace.graphs.calls(backward=False) + trace.graphs.calls(backward=True),
        "graph replays": trace.graphs.graph_replays,
        "graph breaks": trace.graphs.graph_breaks,
        "graphs compiled for training": trace.graphs.training_graphs,
        "forwards": trace.forwards,
        "targets": trace.batch.targets,
        "sequences": trace.batch.sequences,
        "updates in backward": trace.optimizer.updates_in_backward,
        **{f"sequences made by {who}": count for who, count in trace.batch.prepared.items() if who != ENDED},
        **{f"makers of batches ({who})": count for who, count in trace.batch.makers.items()},
    }


def _operators(trace: Trace) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    for one in trace.operations:
        if one.phase != "update" and one.operation_class != "movement":
            counts[f"{one.name} of {one.dtype} in {one.phase}"] += one.count
    return counts


def _held(trace: Trace) -> Mapping[str, int]:
    return {
        "bytes of weights": trace.memory.parameter_bytes,
        "bytes of weights on the host": trace.memory.offloaded_bytes,
        "bytes of gradients": trace.memory.gradient_bytes,
        "bytes of optimizer state": trace.memory.optimizer_state_bytes,
        "bytes of optimizer state on the host": trace.memory.offloaded_state_bytes,
        "shared parameters": len(trace.shared_parameters),
    }


def _written(trace: Trace) -> Mapping[str, int]:
    return {
        f"elements of {one.name} written by {operator}": count
        for one in trace.optimizer.updates
        for operator, count in one.written.items()
    }


def _bytes(trace: Trace) -> Mapping[str, int]:
    sent: Counter[str] = Counter()
    for one in trace.communications:
        sent[f"bytes of {one.collective} over {one.axis} in {one.phase}, {one.dtype}"] += one.payload_bytes
    return {
        "bytes saved for backward": trace.memory.saved_total_bytes,
        "bytes saved on the host": trace.memory.offloaded_saved_bytes,
        **sent,
    }


def left_settings(trace: Trace, run: ResolvedRun) -> str:
    """Name a setting that is another one after the step; empty if all are as they were."""
    if not trace.left_settings or run.model.own is not None:
        return ""
    name, value = next(iter(trace.left_settings.items()))
    return f"after the step torch's setting {name!r} is {value}, and it was another one before the first step"
