"""Checks that later steps of a run do what the traced step did: in the middle, at the end, and on the heap.

At the end two traces of one program are compared. Only counts that do not depend on the batch are. These are operators
outside the update, elements written into each parameter, compiled calls and graphs, collectives, batches and bytes
held. Values and times are not compared. Nor are the operators of clipping, which run only if the norm is above the
limit, and data movement, which caches reduce in later steps. How many rows end a document depends on the batch. So do
the bytes that a mixture's experts save and exchange, so with a mixture saved and communicated bytes are not compared.

A step must also leave torch's settings as they were before the run's first step. A setting that stays changes
evaluations, and whatever else the process computes. A model of a user's own may set what it likes.

In the middle torch's profiler counts calls. Products, layer norms, softmaxes, fused attention and fused or vectorized
updates are compared: the operators by which techniques act. There may be more of them. The profiler also counts
operators inside of others, and those that a recomputation begins and breaks off. Those of clipping are left out.
Compiled code and replayed graphs hide their operators from the profiler, so they are not compared.

The heap is counted in a step of the timed blocks, in which no mode, profiler or hook of torch is active. Its peak is
predicted as the peak of torch's allocator, which another step shows under torch's profiler. Python's objects and
buffers of libraries come to less than the bound: honest runs of one thread stay within 0.2 MiB of the prediction. The
graph that autograd keeps for backward lies on the heap as well: 745 bytes an operator of forward, in a model of 671 of
them. A technique that acts only in steps that are watched, or moves what it saves into arrays of another library, is
beyond it. In a mixture the sizes of products depend on the batch. Libraries prepare kernels for each new size on the
heap, some MiB at a time. So a mixture is not judged.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from assay.config import ResolvedRun
from assay.records.prediction import Memory
from assay.records.trace import ENDED, Trace
from assay.units import format_bytes

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


_NAMES = ("native_layer_norm", "_softmax")
_BEGINNINGS = ("_fused_", "_foreach_", "_scaled_dot_product")
_OF_CLIPPING = ("_foreach_norm", "_foreach_mul_")


def called_otherwise(trace: Trace, calls: Mapping[str, int]) -> str:
    """Return a sentence on the first operator whose calls are not those of the trace; empty if all are."""
    if trace.graphs.compiled or trace.graphs.graph_replays:
        return ""
    for name, wanted in _of_trace(trace).items():
        found = calls.get(name, 0)
        if found < wanted:
            return f"a step in the middle of the run calls {name} {found} times, and the traced step {wanted} times"
    return ""


def _of_trace(trace: Trace) -> Counter[str]:
    """Calls of the compared operators, without their overloads."""
    found: Counter[str] = Counter()
    for one in trace.operations:
        name = one.name.split(".")[1] if one.name.startswith("aten.") else ""
        if (
            name
            and name not in _OF_CLIPPING
            and (one.operation_class == "contraction" or name in _NAMES or name.startswith(_BEGINNINGS))
        ):
            found[name] += one.count
    return found


SHARE = 0.03
"""Part of the predicted peak by which the heap's may differ from it."""
_BYTES, _BYTES_OF_A_THREAD = 256 * 2**10, 64 * 2**10
"""Bytes by which it may differ besides: Python's own, and buffers of each thread."""
_BYTES_OF_AN_OPERATOR = 2**10
"""Bytes of backward's graph for an operator of forward, at most."""


def bound_bytes(predicted: int, threads: int) -> int:
    """Return by how many bytes the heap's peak may differ from its prediction."""
    return int(SHARE * predicted) + _BYTES + _BYTES_OF_A_THREAD * threads


def kept_aside(memory: Memory, threads: int, operators: int) -> str:
    """Return a sentence if the heap's peak in a timed step is not the tensors' peak; empty if it is, or is unknown.

    `operators` is the number of the forward's.
    """
    found, predicted = memory.heap_peak_bytes, memory.allocator_peak_bytes
    if found is None or predicted is None:
        return ""
    bound = bound_bytes(predicted, threads)
    if -bound <= found - predicted <= bound + _BYTES_OF_AN_OPERATOR * operators:
        return ""
    both = f"the heap reaches {format_bytes(found)} in a timed step, and the tensors {format_bytes(predicted)}"
    if found > predicted:
        return f"{both} while they are watched: memory is kept outside of tensors, or saved only in watched steps"
    return f"{both} while they are watched: timed steps leave out some of the work"
