"""Seconds over ranks: what one device takes, what is sent by α–β, and what a pipeline waits, added up by hand."""

import pytest

from assay.cost import Cost
from assay.cost.pipeline.bubble import bubble_fraction
from assay.cost.work import communications
from assay.estimator import estimate
from assay.estimator.timing.over_ranks import step_seconds_over_ranks
from assay.estimator.timing.roofline import stage_time, step_seconds, update_seconds
from assay.hardware import Machine
from assay.hardware.links import Link
from support.machines import LINK, MEASURED
from support.runs import deep_run

FREE = Link(name="free", latency_seconds=1e-12, bandwidth_bytes=1e18, source="any")
RATES, FAST = (MEASURED.model_copy(update={"link": link}) for link in (LINK, FREE))
MACHINE = Machine(processor="any", cores=4, memory_bytes=2**34)


def every(stack: str, ranks: int = 2, **model: int) -> list[Cost]:
    run = deep_run(stack, ranks, **model)
    return [estimate(run, MACHINE, rank).cost for rank in range(ranks)]


def test_replicas_take_a_rank_s_step_and_the_sums() -> None:
    costs = every("data_parallel")
    alone = step_seconds(costs[0], RATES)
    assert alone is not None
    assert step_seconds_over_ranks(costs, FAST) == pytest.approx(alone, rel=1e-6)
    # Of two ranks each sends every payload once, in two steps.
    sent = sum(each.count * (2 * 1e-4 + each.payload_bytes / 1e8) for each in communications(costs[0]))
    assert step_seconds_over_ranks(costs, RATES) == pytest.approx(alone + sent)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_equal_stages_take_their_work_and_the_bubble(schedule: str) -> None:
    costs = every(f"pipeline_parallel:schedule={schedule}", vocab_size=1)
    found = step_seconds_over_ranks(costs, FAST)
    assert found is not None
    stages = [stage_time(cost, FAST, cost.pipeline.stages[0]) for cost in costs]
    longest, shortest = (choose(4 * (one.of("F") + one.of("B")) for one in stages) for choose in (max, min))
    without = found - max(update_seconds(cost, FAST) for cost in costs)
    # Between a line of the shortest and a line of the longest of two stages that are nearly equal.
    assert shortest <= without * (1 - bubble_fraction(2, 4)) <= longest


def test_stages_are_the_step_in_parts() -> None:
    (whole,) = [estimate(deep_run("sdpa_attention", 1), MACHINE).cost]
    parts = [stage_time(whole, RATES, (site,)) for site in ("embedding", *whole.block_sites, "head")]
    summed = sum(one.of("F") + one.of("B") for one in parts) + update_seconds(whole, RATES)
    assert summed == pytest.approx(step_seconds(whole, RATES))


def test_uneven_stages_and_slow_links_take_longer() -> None:
    equal, uneven = (step_seconds_over_ranks(every(f"pipeline_parallel{split}"), FAST) for split in ("", ":split=7-1"))
    slow = step_seconds_over_ranks(every("pipeline_parallel"), RATES)
    assert None not in (equal, uneven, slow)
    assert uneven > 1.3 * equal
    assert slow > equal


def test_without_a_link_or_a_rate_nothing_is_said() -> None:
    assert step_seconds_over_ranks(every("data_parallel"), MEASURED) is None
    assert step_seconds_over_ranks(every("data_parallel+bf16_mixed"), RATES) is None
