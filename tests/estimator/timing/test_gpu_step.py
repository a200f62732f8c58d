"""A step as launches: what waits, is recomputed or replayed, how an optimizer updates, and the queue."""

import random

import pytest

from assay import api
from assay.cost import Cost
from assay.estimator import estimate
from assay.estimator.timing.gpu_step import (
    MODULES,
    RECOMPUTED_SECONDS,
    WAIT,
    GpuStep,
    Queued,
    gpu_step,
    play,
    play_repeated,
)
from assay.hardware.devices import absent_machine
from assay.hardware.kernel_seconds import LAUNCH_SECONDS, UPDATE_LAUNCH_SECONDS, speeds_of


@pytest.mark.parametrize(("host", "device", "seconds"), [(1.0, 5.0, 21.0), (5.0, 1.0, 21.0), (2.0, 2.0, 10.0)])
def test_a_step_takes_as_long_as_the_slower_of_host_and_device(host: float, device: float, seconds: float) -> None:
    played = play([Queued(host, device)] * 4)
    assert played == (seconds, 4 * host, 4 * device)


def test_work_of_the_host_after_a_wait_is_added() -> None:
    forward, update = [Queued(1.0, 5.0)] * 2, [Queued(3.0, 1.0)]
    assert play([*forward, *update]).seconds == 12.0
    assert play([*forward, WAIT, *update]).seconds == 15.0


@pytest.mark.parametrize("seed", range(20))
def test_a_repeated_queue_is_the_queue_played_so_often(seed: int) -> None:
    drawn = random.Random(seed)
    queue = [Queued(drawn.random(), drawn.choice((0.0, 2 * drawn.random()))) for _ in range(drawn.randint(1, 12))]
    for times in (1, 2, 7):
        assert play_repeated(queue, times) == pytest.approx(play([*queue * times, WAIT]))


def test_a_launch_without_a_kernel_takes_the_hosts_time_only() -> None:
    assert play([Queued(2.0, 0.0), Queued(1.0, 4.0)]) == (7.0, 3.0, 4.0)


H200 = speeds_of("h200")


def ledger(*stack: str, **over: object) -> Cost:
    settings = [f"training.{key}={value}" for key, value in over.items()]
    run = api.configure("shakespeare-char", ["model.vocab_size=65", "device=cuda", *settings], *stack)
    return estimate(run, absent_machine("h200")).cost


def step(*stack: str, **over: object) -> GpuStep:
    return gpu_step(ledger(*stack, **over), H200)


def host(found: GpuStep) -> float:
    return sum(one.host for one in found.passes)


def device(found: GpuStep) -> float:
    return sum(one.device for one in found.passes)


def test_a_step_that_is_read_waits_before_its_update() -> None:
    read, queued = (step(read_every=every).played() for every in (1, 10))
    update = sum(one.host for one in step().update)
    # The device is slower than the host, so only a step that waits pays for the launches of its update.
    assert update / 3 < read.seconds - queued.seconds < update


def test_a_step_takes_the_longer_of_host_and_device() -> None:
    wide, narrow = step(), step("bf16_mixed+sdpa_attention:backend=flash")
    assert not wide.bounded_by_host
    assert narrow.bounded_by_host
    assert wide.played().seconds >= wide.played().device
    assert narrow.played().seconds >= narrow.played().host


def test_recomputing_costs_the_device_its_forwards_and_the_host_its_saved_tensors() -> None:
    plain, again = ledger(), ledger("activation_checkpointing")
    tensors = sum(len(again.tape[at].saves) for one in again.lifetimes.segments for at in one.runs)
    before, after = gpu_step(plain, H200), gpu_step(again, H200)
    assert 1.25 < device(after) / device(before) < 1.4
    operators = len(after.passes) - len(before.passes) - sum(len(one.runs) for one in again.lifetimes.segments)
    told = tensors * RECOMPUTED_SECONDS + operators * MODULES * LAUNCH_SECONDS
    assert abs(host(after) - host(before) - told) < 1e-9


def test_micro_batches_launch_as_often_and_add_their_gradients() -> None:
    whole, parts = step(), step("gradient_accumulation:micro_batches=4")
    weights = len(ledger().pieces)
    assert len(parts.passes) == 4 * len(whole.passes) + 3 * weights
    assert device(parts) > device(whole)


def test_a_replayed_step_has_one_launch_of_all_its_kernels() -> None:
    eager, replayed = step(), step("cuda_graphs")
    (one,) = replayed.passes
    assert one.host < 0.01 * host(eager)
    assert abs(one.device / device(eager) - 1) < 0.01


def test_an_update_over_lists_needs_few_launches() -> None:
    plain, listed, fused = (step(*stack).update for stack in ((), ("foreach_adamw",), ("fused_adamw",)))
    assert len(plain) == 2 + round(8.5 * len(ledger().pieces))
    assert len(listed) == len(fused) == 3
    assert sum(one.host for one in listed) < 0.1 * sum(one.host for one in plain)
    assert fused[-1].device < listed[-1].device


def test_an_optimizer_that_multiplies_launches_its_products() -> None:
    muon = ledger("muon")
    products = sum(one.times for one in muon.optimizer.rule.products(muon.updated))
    slow = [one for one in gpu_step(muon, H200).update if one.host > 2 * UPDATE_LAUNCH_SECONDS]
    assert len(slow) == products + 2  # and the norm, and the factor


def test_updates_within_backward_leave_nothing_for_its_end() -> None:
    found = step("optimizer_in_backward", gradient_clip=0)
    assert found.update == ()
    assert len(found.passes) > len(step().passes)


def test_compiled_code_launches_fewer_kernels_and_takes_the_host_as_long() -> None:
    eager, compiled = step(), step("compile")
    assert device(compiled) < device(eager)
    assert 1.0 < host(compiled) / host(eager) < 1.25
