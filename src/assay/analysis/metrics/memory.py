"""Memory: tensors, the caching allocator, the process."""

from assay.analysis.metrics.base import Metric

TENSORS_PEAK_BYTES = Metric(
    name="tensors_peak_bytes",
    title="tensors, peak",
    unit="bytes",
    better="lower",
    kind="exact",
    meaning="The most bytes requested from torch's allocator at any instant of one optimizer step after the first, "
    "live tensors included. It is counted, not sampled, and repeats exactly, so its change needs no interval.",
    predicted=True,
    of=lambda result: result.memory.tensors_peak_bytes,
)

RESERVED_PEAK_BYTES = Metric(
    name="reserved_peak_bytes",
    title="reserved, peak",
    unit="bytes",
    better="lower",
    kind="exact",
    meaning="The most bytes that torch's caching allocator holds at any instant. A CPU has no such allocator.",
    shown=False,
    predicted=True,
    of=lambda result: result.memory.reserved_peak_bytes,
)

PROCESS_PEAK_BYTES = Metric(
    name="process_peak_bytes",
    title="process, peak",
    unit="bytes",
    better="lower",
    kind="timed",
    meaning="The peak of the process's resident anonymous memory in the step before the timed ones of a block, by the "
    "kernel's high-water mark. It includes the interpreter, the libraries and memory that the allocator keeps.",
    predicted=True,
    of=lambda result: result.memory.process_peak_bytes,
    of_block=lambda block: block.process_peak_bytes,
)
