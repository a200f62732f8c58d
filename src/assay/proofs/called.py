"""Check that a step of the run's middle calls what the traced step called, as torch's profiler counts it.

Products, layer norms, softmaxes, fused attention and fused or vectorized updates are compared: the operators by which
techniques act. A recomputation that stops early begins one more operator than it ends, so there may be one more for
each block. Compiled code and replayed graphs hide their operators from the profiler, so they are not compared.
"""

from collections import Counter
from collections.abc import Mapping

from assay.records.trace import Trace

_NAMES = ("native_layer_norm", "_softmax")
_BEGINNINGS = ("_fused_", "_foreach_", "_scaled_dot_product")


def called_otherwise(trace: Trace, calls: Mapping[str, int]) -> str:
    """Return a sentence on the first operator whose calls are not those of the trace; empty if all are."""
    if trace.graphs.compiled or trace.graphs.graph_replays:
        return ""
    for name, wanted in _of_trace(trace).items():
        found = calls.get(name, 0)
        if not wanted <= found <= wanted + len(trace.blocks):
            return f"a step in the middle of the run calls {name} {found} times, and the traced step {wanted} times"
    return ""


def _of_trace(trace: Trace) -> Counter[str]:
    """Calls of the compared operators, without their overloads."""
    found: Counter[str] = Counter()
    for one in trace.operations:
        name = one.name.split(".")[1] if one.name.startswith("aten.") else ""
        if name and (one.operation_class == "contraction" or name in _NAMES or name.startswith(_BEGINNINGS)):
            found[name] += one.count
    return found
