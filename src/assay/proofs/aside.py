"""Check that a step keeps nothing aside: the heap's peak must be that of the tensors and of library scratch.

The heap is counted in a step of the timed blocks, in which no mode, profiler or hook of torch is active. Its peak is
predicted as the peak of torch's allocator, which another step shows under torch's profiler. Python's objects and
buffers of libraries come to less than the bound: honest runs of one thread stay within 0.2 MiB of the prediction. The
graph that autograd keeps for backward lies on the heap as well: 745 bytes an operator of forward, in a model of 671 of
them. A technique that acts only in steps that are watched, or moves what it saves into arrays of another library, is
beyond it.

In a mixture the sizes of products depend on the batch. Libraries prepare kernels for each new size on the heap, some
MiB at a time. So a mixture is not judged.
"""

from assay.records.prediction import Memory
from assay.units import format_bytes

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
