"""The largest values that fit: against a search of all values, and against what really trains."""

import itertools
import random
from collections.abc import Callable

import pytest

from assay.config import load
from assay.errors import UsageError
from assay.estimator.capacity import _most, capacity, largest, peak_bytes
from assay.estimator.device_memory import OBJECTS
from assay.hardware import Machine
from assay.hardware.devices import DEVICES, absent_machine

MACHINE = Machine(processor="any", cores=4, memory_bytes=2**34)
SMALL = (
    *("model.n_layer=2", "model.n_head=2", "model.n_embd=16", "model.context_length=16", "model.vocab_size=61"),
    *("training.batch_size=4", "device=cpu"),
)
STACKS = (
    (),
    ("sdpa_attention", "bf16_mixed"),
    ("gradient_accumulation:micro_batches=4",),
    ("activation_checkpointing", "adamw_bf16_state"),
    ("data_parallel",),
)


@pytest.mark.parametrize("largest", [1, 8, 100, 1000])
def test_the_last_that_fits_is_found_whatever_the_shape_of_the_peak(largest: int) -> None:
    draw = random.Random(0)
    for _ in range(300):
        steps = [draw.choice((0, 0, 1, 3, 40, 1000)) for _ in range(largest)]
        peaks = [draw.randint(0, 50) + one for one in itertools.accumulate(steps)]
        peaks.sort()
        budget = draw.choice((0, peaks[0], peaks[-1], peaks[largest // 2], draw.randint(0, peaks[-1] + 10)))
        assert _most(lambda count, peaks=peaks: peaks[count - 1], budget, largest) == sum(p <= budget for p in peaks)


def test_few_counts_are_tried_where_peaks_grow_evenly() -> None:
    tried: list[int] = []

    def peak(count: int) -> int:
        tried.append(count)
        return 7_000_000 + 31_013 * count

    assert _most(peak, 10**9, 2**24) == (10**9 - 7_000_000) // 31_013
    assert len(tried) < 12


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("key", ["training.batch_size", "model.context_length", "model.n_layer", "model.n_embd"])
def test_the_answer_is_that_of_a_search_of_all_values(stack: tuple[str, ...], key: str) -> None:
    ranks = ["ranks=2"] if stack == ("data_parallel",) else []
    run = load("demo", [*SMALL, *ranks], [*stack])
    budget = OBJECTS + round((peak_bytes(run, MACHINE) - OBJECTS) * 1.37)
    found = largest(run, key, budget, MACHINE)
    assert found.value is not None
    assert found.peak_bytes <= budget
    peaks: Callable[[int], int] = lambda value: peak_bytes(load(run, [f"{key}={value}"]), MACHINE)  # noqa: E731
    assert found.peak_bytes == peaks(found.value)
    assert found.next_bytes == peaks(found.value + found.unit) > budget
    assert all(peaks(value) <= budget for value in range(found.unit, found.value, found.unit))


def test_each_setting_has_its_answer_and_a_smaller_budget_a_smaller_one() -> None:
    run = load("demo", list(SMALL))
    large, small = (capacity(run, budget, MACHINE) for budget in (6_000_000, 4_000_000))
    assert [one.key for one in large] == [
        *("training.batch_size", "model.context_length", "model.n_layer", "model.n_embd")
    ]
    for more, less in zip(large, small, strict=True):
        assert (more.value or 0) > (less.value or 0)


def test_a_budget_in_which_nothing_fits_has_the_smallest_need() -> None:
    run = load("demo", list(SMALL))
    with pytest.raises(UsageError, match=r"nothing fits into 1000 B, .* with model\.n_embd=2"):
        capacity(run, 1000, MACHINE)
    found = largest(run, "training.batch_size", 1000, MACHINE)
    assert (found.value, found.unit) == (None, 1)
    assert found.peak_bytes == peak_bytes(load(run, ["training.batch_size=1"]), MACHINE)


def test_a_run_without_a_known_vocabulary_is_refused() -> None:
    with pytest.raises(UsageError, match="the size of the 'char' vocabulary"):
        capacity(load("demo", ["data.tokenizer=char"]), 10**9, MACHINE)


def test_a_device_holds_what_its_driver_gives() -> None:
    """With 24·10^9 bytes for an RTX 4090, whose driver gives 24,564 MiB, nine sequences were the answer."""
    run, there = load("gpt2-124m").model_copy(update={"device": "cuda"}), absent_machine("rtx4090")
    found = largest(run, "training.batch_size", DEVICES["rtx4090"].memory_bytes, there, "device")
    assert found.value == 10
    assert found.peak_bytes <= DEVICES["rtx4090"].memory_bytes < (found.next_bytes or 0)
