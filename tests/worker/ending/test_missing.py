"""Figures that a system does not tell, each with the reason."""

from assay.config import validate
from assay.config.run import OwnRows
from assay.optimizations import resolved
from assay.records.memory import Memory
from assay.records.timing import Block
from assay.worker.ending.missing import missing

ALONE = resolved(validate({}))
TWO = resolved(validate({"ranks": 2, "optimizations": ["data_parallel"]}))
WHOLE = Block(
    steps=2, seconds=1.0, median_step_seconds=0.5, tokens=8, others_seconds=0.0, load=0.5, clock_hertz=1e9, cores=2
)
POOR = Block(steps=2, seconds=1.0, median_step_seconds=0.5, tokens=8)
MEASURED = Memory(process_peak_bytes=1, library_scratch_bytes=0, heap_peak_bytes=1)


def test_nothing_is_missing_where_all_is_told() -> None:
    assert not dict(missing(MEASURED, [POOR, WHOLE], ALONE))


def test_what_is_not_told_has_a_reason() -> None:
    told = dict(missing(Memory(library_scratch_bytes=0), [POOR], ALONE))
    memory = {"memory.process_peak_bytes", "memory.heap_peak_bytes"}
    assert set(told) == {*memory, "blocks.others_seconds", "blocks.load", "blocks.clock_hertz"}
    assert all(told.values())


def test_a_heap_that_was_left_out_says_so() -> None:
    memory = MEASURED.model_copy(update={"heap_peak_bytes": None})
    (absent,) = dict(missing(memory, [WHOLE], ALONE)).values()
    (left_out,) = dict(missing(memory, [WHOLE], ALONE, heap=False)).values()
    assert "memray is not installed" in absent
    assert "without times" in left_out


def test_what_was_not_to_be_measured_is_not_missing() -> None:
    """Runs that end before their first block, GPUs, and ranks, over which the heap is not counted."""
    assert not dict(missing(Memory(), [], ALONE))
    assert not dict(missing(Memory(process_peak_bytes=1, tensors_peak_bytes=1), [WHOLE], ALONE))
    several = MEASURED.model_copy(update={"heap_peak_bytes": None})
    assert not dict(missing(several, [WHOLE], TWO))


def test_a_run_on_batches_of_ones_own_lacks_what_needs_text_or_validation() -> None:
    rows = OwnRows(targets=3, validation=True)
    with_validation = dict(missing(MEASURED, [WHOLE], ALONE.model_copy(update={"own_rows": rows})))
    assert set(with_validation) == {"val_perplexity", "val_bits_per_byte", "epoch_seconds", "sample"}
    blind = OwnRows(targets=3, validation=False)
    without = dict(missing(MEASURED, [WHOLE], ALONE.model_copy(update={"own_rows": blind})))
    assert set(without) - set(with_validation) == {
        "val_loss",
        "val_targets",
        "val_split_targets",
        "val_standard_error",
    }
    assert all(without.values())
