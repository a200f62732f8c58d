"""Figures of a run that its system does not tell, each with the reason. The record of the run keeps them."""

import sys
from collections.abc import Iterator, Sequence

from assay.config.run import ResolvedRun
from assay.records.memory import Memory
from assay.records.timing import Block

_OF_LINUX = "it is read from {}, which only Linux has"
_ALL_REPLAYED = "it is read around timed steps, and all of these were replayed by the proof"
_NO_MEMRAY = "memray is not installed; there is none for Windows"
_NO_TIMES = "a cell without times does not count it, because that takes as long as many small steps"
_OF_BLOCKS = {
    "others_seconds": _OF_LINUX.format("/proc/stat"),
    "load": _OF_LINUX.format("/proc/loadavg"),
    "clock_hertz": "neither the kernel's driver of the clock nor /proc/cpuinfo tells it",
}

_OF_TEXT = ("val_perplexity", "val_bits_per_byte", "epoch_seconds", "sample")
_OF_VALIDATION = ("val_loss", "val_targets", "val_split_targets", "val_standard_error")


def missing(
    memory: Memory, blocks: Sequence[Block], run: ResolvedRun, *, heap: bool = True
) -> Iterator[tuple[str, str]]:
    """Yield the name of each figure that was to be measured and is None, with the reason.

    A run that ended before its first timed block, or before the memory pass, was to measure nothing there. The heap is
    counted on a CPU and on one rank only; a GPU has reserved memory instead. `heap` is false where it was left out.
    """
    if blocks and memory.process_peak_bytes is None:
        yield "memory.process_peak_bytes", _OF_LINUX.format("/proc/self/status")
    on_cpu = memory.library_scratch_bytes is not None and memory.reserved_peak_bytes is None
    if run.ranks == 1 and on_cpu and memory.heap_peak_bytes is None:
        yield "memory.heap_peak_bytes", _NO_MEMRAY if heap else _NO_TIMES
    for name, reason in _OF_BLOCKS.items():
        if blocks and all(getattr(one, name) is None for one in blocks):
            replayed = name == "others_seconds" and sys.platform == "linux"
            yield f"blocks.{name}", _ALL_REPLAYED if replayed else reason
    if run.own_rows is not None:
        yield from dict.fromkeys(_OF_TEXT, "the batches are your own, and no text").items()
        if not run.own_rows.validation:
            yield from dict.fromkeys(_OF_VALIDATION, "your assay.OwnModel has no validation batches").items()
