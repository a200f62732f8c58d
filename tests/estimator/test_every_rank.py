"""A step of every rank: the fullest speaks for all; pipeline and links are in the joint time."""

import json

import pytest

from assay.cost import Cost, pipeline_schedules
from assay.cost.pipeline_bubble import bubble_fraction
from assay.cost.work import communications
from assay.estimator import estimate
from assay.estimator.every_rank import (
    EveryRank,
    bubble_share,
    estimate_every_rank,
    idle_shares,
    step_seconds_over_ranks,
)
from assay.estimator.timing.step_time import stage_time, step_seconds, update_seconds
from assay.hardware import Machine
from assay.hardware.links import Link
from assay.records.prediction import Predicted
from support.machines import LINK, MEASURED
from support.runs import deep_run

MACHINE = Machine(
    processor="any", cores=4, memory_bytes=2**34, rates={"cpu": MEASURED.model_copy(update={"link": LINK})}
)


def every(stack: str, ranks: int) -> EveryRank:
    return estimate_every_rank(deep_run(stack, ranks), MACHINE)


@pytest.mark.parametrize(("stack", "ranks"), [("pipeline_parallel", 2), ("fully_sharded+tensor_parallel", 4)])
def test_each_rank_is_its_own_estimate(stack: str, ranks: int) -> None:
    found, run = every(stack, ranks), deep_run(stack, ranks)
    alone = [estimate(run, MACHINE, rank) for rank in range(ranks)]
    peaks = [one.timeline.peak.nbytes for one in alone]
    assert found.fullest.timeline.peak.nbytes == max(peaks)
    assert found.fullest.cost.rank == peaks.index(max(peaks))
    assert found.step_flops == sum(one.step_flops for one in alone)
    assert found.step_seconds == step_seconds_over_ranks([one.cost for one in alone], MACHINE.rates["cpu"])
    assert found.handed_bytes == tuple(
        round(sum(each.count * each.payload_bytes for each in communications(one.cost))) for one in alone
    )


def test_a_run_s_prediction_has_every_rank() -> None:
    found = every("pipeline_parallel", 2)
    said = Predicted.model_validate(found.predicted())
    assert [one.tensors_peak_bytes for one in said.ranks] == [one.timeline.peak.nbytes for one in found.ranks]
    assert [one.sent_bytes for one in said.ranks] == list(found.handed_bytes)
    assert [one.idle_share for one in said.ranks] == [found.idle_shares[rank] for rank in range(2)]
    schedule = found.fullest.cost.pipeline.schedule
    assert schedule is not None
    assert said.bubble_share == bubble_share(schedule)
    assert said.tensors_peak_bytes == max(one.tensors_peak_bytes for one in said.ranks)


def test_as_plain_values_it_says_whose_they_are() -> None:
    found = every("data_parallel", 2)
    value = json.loads(json.dumps(found.to_dict()))
    assert value["rank"] == 0
    assert value["tensors_peak_bytes"] == found.fullest.timeline.peak.nbytes
    assert sum(one["payload_bytes"] * one["calls"] for one in value["communications"]) == found.handed_bytes[0]


def test_one_device_is_a_single_rank() -> None:
    found, run = every("sdpa_attention", 1), deep_run("sdpa_attention", 1)
    alone = estimate(run, MACHINE)
    assert found.to_dict() == alone.to_dict()
    assert found.predicted() == alone.predicted()
    assert found.step_seconds == alone.step_seconds


FREE = Link(name="free", latency_seconds=1e-12, bandwidth_bytes=1e18, source="any")
RATES, FAST = (MEASURED.model_copy(update={"link": link}) for link in (LINK, FREE))
UNTIMED = Machine(processor="any", cores=4, memory_bytes=2**34)


def ledgers(stack: str, ranks: int = 2, **model: int) -> list[Cost]:
    run = deep_run(stack, ranks, **model)
    return [estimate(run, UNTIMED, rank).cost for rank in range(ranks)]


def test_replicas_take_a_rank_s_step_and_the_sums() -> None:
    costs = ledgers("data_parallel")
    alone = step_seconds(costs[0], RATES)
    assert alone is not None
    assert step_seconds_over_ranks(costs, FAST) == pytest.approx(alone, rel=1e-6)
    # Of two ranks each sends every payload once, in two steps.
    sent = sum(each.count * (2 * 1e-4 + each.payload_bytes / 1e8) for each in communications(costs[0]))
    assert step_seconds_over_ranks(costs, RATES) == pytest.approx(alone + sent)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_equal_stages_take_their_work_and_the_bubble(schedule: str) -> None:
    costs = ledgers(f"pipeline_parallel:schedule={schedule}", vocab_size=1)
    found = step_seconds_over_ranks(costs, FAST)
    assert found is not None
    stages = [stage_time(cost, FAST, cost.pipeline.stages[0]) for cost in costs]
    longest, shortest = (choose(4 * (one.of("F") + one.of("B")) for one in stages) for choose in (max, min))
    without = found - max(update_seconds(cost, FAST) for cost in costs)
    # Between a line of the shortest and a line of the longest of two stages that are nearly equal.
    assert shortest <= without * (1 - bubble_fraction(2, 4)) <= longest


def test_stages_are_the_step_in_parts() -> None:
    (whole,) = [estimate(deep_run("sdpa_attention", 1), UNTIMED).cost]
    parts = [stage_time(whole, RATES, (site,)) for site in ("embedding", *whole.block_sites, "head")]
    summed = sum(one.of("F") + one.of("B") for one in parts) + update_seconds(whole, RATES)
    assert summed == pytest.approx(step_seconds(whole, RATES))


def test_uneven_stages_and_slow_links_take_longer() -> None:
    equal, uneven = (
        step_seconds_over_ranks(ledgers(f"pipeline_parallel{split}"), FAST) for split in ("", ":split=7-1")
    )
    slow = step_seconds_over_ranks(ledgers("pipeline_parallel"), RATES)
    assert None not in (equal, uneven, slow)
    assert uneven > 1.3 * equal
    assert slow > equal


def test_without_a_link_or_a_rate_nothing_is_said() -> None:
    assert step_seconds_over_ranks(ledgers("data_parallel"), MEASURED) is None
    assert step_seconds_over_ranks(ledgers("data_parallel+bf16_mixed"), RATES) is None


def idle_of(stack: str, ranks: int = 2, **model: int) -> list[float]:
    run = deep_run(stack, ranks, **model)
    found = idle_shares([estimate(run, UNTIMED, rank).cost for rank in range(ranks)])
    return [found[rank] for rank in range(ranks)]


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (4, 4), (4, 8)])
def test_equal_stages_idle_as_published(stages: int, micro_batches: int) -> None:
    formula = bubble_fraction(stages, micro_batches)
    for make in (pipeline_schedules.gpipe, pipeline_schedules.one_f_one_b):
        assert bubble_share(make(stages, micro_batches)) == pytest.approx(formula)
    interleaved = bubble_share(pipeline_schedules.interleaved_1f1b(stages, micro_batches, 2))
    assert interleaved == pytest.approx(bubble_fraction(stages, micro_batches, chunks=2))
    assert bubble_share(pipeline_schedules.zero_bubble_by_hand(stages, 2 * micro_batches)) < formula


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_model_s_stages_idle_as_they_are_long(schedule: str) -> None:
    # With few tokens the head is next to nothing, and the stages are equal.
    assert idle_of(f"pipeline_parallel:schedule={schedule}", vocab_size=1) == pytest.approx([0.2, 0.2], abs=0.01)
    first, last = idle_of(f"pipeline_parallel:schedule={schedule}", vocab_size=4096)
    assert first > 0.4 > 0.2 > last


def test_crossed_lines_idle_alike_and_what_is_no_pipeline_does_not() -> None:
    alone, crossed = idle_of("pipeline_parallel"), idle_of("pipeline_parallel+data_parallel", 4)
    assert crossed == pytest.approx([alone[0], alone[0], alone[1], alone[1]])
    assert idle_shares([estimate(deep_run("data_parallel"), UNTIMED, rank).cost for rank in range(2)]) == {}


def test_an_uneven_split_moves_it() -> None:
    heavy, light = idle_of("pipeline_parallel:split=6-2")
    assert heavy < 0.15
    assert light > 0.6
    # Fewer blocks for the stage with the head, which is here about two: the stages come out as equal ones do.
    evened, equal = (idle_of(f"pipeline_parallel{split}", vocab_size=768) for split in (":split=5-3", ""))
    assert evened == pytest.approx([0.2, 0.2], abs=0.03)
    assert max(equal) - min(equal) > 0.2


def test_recomputing_makes_backward_longer_on_every_stage() -> None:
    plain, again = idle_of("pipeline_parallel"), idle_of("pipeline_parallel+activation_checkpointing")
    assert again == pytest.approx(plain, abs=0.02)
