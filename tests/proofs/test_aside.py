"""What a step keeps outside of tensors shows in the heap of a timed step."""

import pytest

from assay.proofs.aside import bound_bytes, kept_aside
from assay.records.prediction import Memory

MIB = 2**20


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("peak", [MIB, 40 * MIB, 4000 * MIB])
def test_the_bound_is_the_edge(peak: int, threads: int) -> None:
    bound = bound_bytes(peak, threads)
    for difference, fault in ((0, ""), (bound, ""), (bound + 1, "outside of tensors"), (-bound - 1, "leave out")):
        memory = Memory(allocator_peak_bytes=peak, heap_peak_bytes=peak + difference)
        found = kept_aside(memory, threads, 0)
        assert fault in found
        assert bool(found) == bool(fault)


def test_figures_of_an_honest_run_are_within_it() -> None:
    """One measured run of `demo` with bf16_mixed: 8.26 MiB of heap, 8.08 MiB of tensors and 0.39 of scratch."""
    assert not kept_aside(Memory(allocator_peak_bytes=8_880_000, heap_peak_bytes=8_660_000), 1, 300)


def test_a_halved_peak_that_is_not_real_is_seen_on_the_smallest_model() -> None:
    """`demo` without and with checkpointing: 11.2 and 5.57 MiB of tensors."""
    assert kept_aside(Memory(allocator_peak_bytes=int(5.57 * MIB), heap_peak_bytes=int(11.2 * MIB)), 2, 300)


def test_a_figure_that_was_not_counted_is_not_judged() -> None:
    assert not kept_aside(Memory(allocator_peak_bytes=MIB), 1, 0)
    assert not kept_aside(Memory(heap_peak_bytes=MIB), 1, 0)


def test_the_graph_of_a_model_of_many_small_operators_is_allowed_for() -> None:
    """The recurrent model of docs/own-model.md: 1.86 MiB of heap, 1.30 of tensors, 671 operators of forward."""
    memory = Memory(allocator_peak_bytes=1_358_728, heap_peak_bytes=1_950_582)
    assert not kept_aside(memory, 1, 671)
    assert kept_aside(memory, 1, 100)
