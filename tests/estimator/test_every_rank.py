"""A step of every rank: the figures are those of each rank's own estimate, and the fullest speaks for all."""

import json

import pytest

from assay.cost.work import communications
from assay.estimator import estimate
from assay.estimator.every_rank import EveryRank, estimate_every_rank
from assay.estimator.timing.joint_time import bubble_share, step_seconds_over_ranks
from assay.hardware import Machine
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
