"""Check that a step of the run's middle calls what the traced step called, as torch's profiler counts it.

Products, layer norms, softmaxes, fused attention and fused or vectorized updates are compared: the operators by which
techniques act. There may be more of them. The profiler also counts operators inside of others, and those that a
recomputation begins and breaks off. Those of clipping are left out, which not every step needs. Compiled code and
replayed graphs hide their operators from the profiler, so they are not compared.
"""

from collections import Counter
from collections.abc import Mapping

from assay.records.trace import Trace

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
