"""Figures that a system does not tell, each with the reason."""

from assay.records.memory import Memory
from assay.records.timing import Block
from assay.worker.ending.missing import missing

WHOLE = Block(
    steps=2, seconds=1.0, median_step_seconds=0.5, tokens=8, others_seconds=0.0, load=0.5, clock_hertz=1e9, cores=2
)
POOR = Block(steps=2, seconds=1.0, median_step_seconds=0.5, tokens=8)
MEASURED = Memory(process_peak_bytes=1, library_scratch_bytes=0, heap_peak_bytes=1)


def test_nothing_is_missing_where_all_is_told() -> None:
    assert not dict(missing(MEASURED, [POOR, WHOLE], ranks=1))


def test_what_is_not_told_has_a_reason() -> None:
    told = dict(missing(Memory(library_scratch_bytes=0), [POOR], ranks=1))
    memory = {"memory.process_peak_bytes", "memory.heap_peak_bytes"}
    assert set(told) == {*memory, "blocks.others_seconds", "blocks.load", "blocks.clock_hertz"}
    assert all(told.values())


def test_what_was_not_to_be_measured_is_not_missing() -> None:
    """Runs that end before their first block, GPUs, and ranks, over which the heap is not counted."""
    assert not dict(missing(Memory(), [], ranks=1))
    assert not dict(missing(Memory(process_peak_bytes=1, tensors_peak_bytes=1), [WHOLE], ranks=1))
    several = MEASURED.model_copy(update={"heap_peak_bytes": None})
    assert not dict(missing(several, [WHOLE], ranks=2))
