"""Reserved bytes of a step: bounds that hold for any order of frees, and a peer that serves every request slowly."""

from dataclasses import replace

import pytest

from assay.cost import Cost, replay
from assay.cost.simulation.caching_allocator import SMALL_REQUEST, block_bytes
from assay.cost.simulation.reserved import Interval, RecordedLedger, _played, record_events, reserved_bytes, with_update
from assay.cost.simulation.timeline import compose_peak, play
from assay.estimator import estimate
from assay.hardware import Accelerator, Machine
from support.allocators import Slow
from support.runs import run_with, specs_of

GPU = Accelerator(name="any", memory_bytes=2**36)
MACHINE = Machine(processor="any", cores=4, memory_bytes=2**34, accelerators=(GPU,))
NOTHING = Interval(0, 0)
STACKS = ((), ("sdpa_attention", "bf16_mixed"), ("activation_checkpointing", "lion"), ("cpu_offload",))
WIDE = {"n_embd": 128, "context_length": 128, "vocab_size": 5000}
"""Both pools have work then."""


def cost(*stack: str) -> Cost:
    run = run_with(*specs_of(stack))
    wide = run.model_copy(update={"device": "cuda", "model": run.model.model_copy(update=WIDE)})
    return estimate(wide, MACHINE).cost


@pytest.mark.parametrize("stack", STACKS)
def test_no_fewer_bytes_than_tensors_have_and_no_more_than_without_reuse(stack: tuple[str, ...]) -> None:
    one = cost(*stack)
    found = reserved_bytes(one, NOTHING)
    assert found is not None
    timeline = replay(one)
    assert timeline.peak.nbytes <= found.low <= found.high
    whole = one.held_bytes + timeline.allocated_bytes
    assert found.high <= 2 * whole + 40 * 2**20


@pytest.mark.parametrize("stack", STACKS)
def test_a_search_of_all_gaps_reserves_the_same(stack: tuple[str, ...]) -> None:
    one = cost(*stack)
    ledger = RecordedLedger()
    play(one, ledger)
    slow = Slow()
    for place, tensor in enumerate(one.held_at_first):
        slow.allocate(-2 - place, tensor.nbytes)
    for step in range(3):
        requests = 0
        for event in ledger.requests.events:
            if event < 0:
                slow.release(-1 - event)
            else:
                if event:
                    slow.allocate(requests, event)
                requests += 1
        if step == 0:
            for place, tensor in enumerate(one.optimizer_state):
                slow.allocate(10**6 + place, tensor.nbytes)
        for number in range(requests):
            slow.release(number)
    assert _played(one, ledger.requests.events, 0, 0).reserved_bytes == slow.reserved_bytes


@pytest.mark.parametrize("stack", STACKS[:-1])
def test_temporaries_of_one_size_change_nothing_where_blocks_are_freed_at_once(stack: tuple[str, ...]) -> None:
    one = cost(*stack)
    events = record_events(one)
    whole, short = (with_update(events, one, repeats=repeats) for repeats in (True, False))
    assert len(short) < len(whole)
    first, second = (_played(one, each, 2**20, 0) for each in (whole, short))
    assert first.reserved_bytes == second.reserved_bytes
    assert first.allocated_peak_bytes == second.allocated_peak_bytes


@pytest.mark.parametrize("stack", STACKS)
def test_the_replay_with_parts_keeps_the_same_requests(stack: tuple[str, ...]) -> None:
    one = cost(*stack)
    assert compose_peak(one).requests == tuple(record_events(one))


def test_events_add_up_to_the_peak_of_tensors() -> None:
    one = cost("bf16_mixed")
    ledger = RecordedLedger()
    play(one, ledger)
    peak = replay(one).peak.nbytes
    live, sizes, most = one.held_bytes, [], 0
    for event in ledger.requests.events:
        live += event if event >= 0 else -sizes[-1 - event]
        if event >= 0:
            sizes.append(event)
        most = max(most, live)
    assert peak <= most <= peak + max(sizes)


def test_working_storage_is_reserved_too() -> None:
    one, working = cost(), Interval(8_519_680, 8_519_680 + 4 * 2**20)
    without, found = reserved_bytes(one, NOTHING), reserved_bytes(one, working)
    assert without is not None
    assert found is not None
    assert found.low - without.low == pytest.approx(working.low, abs=2 * 2**20)
    assert without.high < found.high <= without.high + 20 * 2**20 + working.high


def test_a_captured_graph_is_not_predicted() -> None:
    assert reserved_bytes(replace(cost(), replayed=True), NOTHING) is None


def test_pools_are_apart() -> None:
    one = cost()
    small = [tensor for tensor in one.held_at_first if block_bytes(tensor.nbytes) <= SMALL_REQUEST]
    assert 0 < len(small) < len(one.held_at_first)
