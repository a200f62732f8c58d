"""Shards that are gathered in bfloat16: half as many bytes come, sums and what lies here stay in float32.

And shards in the host's memory, of which the device sees what is gathered.
"""

from collections import Counter
from dataclasses import replace

import pytest

from assay.config import ModelConfig, Run
from assay.config.mesh import Mesh
from assay.cost import Cost, baseline, executed_flops, replay
from assay.cost.rewrites.replicated_step import computing_in, shard_ledger
from assay.cost.step_cost import Sharding
from assay.cost.work import communications

MODEL = ModelConfig(n_layer=2, n_head=2, n_embd=32, context_length=16, vocab_size=64)


def ledger(dtype: str | None = None, micro_batches: int = 1, *, reshard: bool = True, on_host: bool = False) -> Cost:
    cost = replace(baseline(Run(model=MODEL)), mesh=Mesh(dp=2))
    narrow = computing_in(cost, dtype) if dtype else cost
    return shard_ledger(narrow, reshard=reshard, on_host=on_host).cut(micro_batches)


def payloads(cost: Cost) -> Counter[tuple[str, str]]:
    total: Counter[tuple[str, str]] = Counter()
    for one in communications(cost):
        total[one.collective, one.dtype] += round(one.payload_bytes * one.count)
    return total


def test_half_is_gathered_and_sums_stay_wide() -> None:
    wide, narrow = payloads(ledger()), payloads(ledger("bfloat16"))
    assert narrow["all_gather", "bfloat16"] == wide["all_gather", "float32"] / 2 > 0
    assert narrow["reduce_scatter", "float32"] == wide["reduce_scatter", "float32"] > 0


def test_weights_that_lie_here_and_their_state_stay_wide() -> None:
    wide, narrow = ledger(), ledger("bfloat16")
    assert narrow.parameter_bytes == wide.parameter_bytes
    assert narrow.optimizer_state_bytes == wide.optimizer_state_bytes
    assert executed_flops(narrow).keys() == {"bfloat16"}


def test_gradients_that_wait_for_later_micro_batches_wait_in_float32() -> None:
    cost = ledger("bfloat16", micro_batches=3)
    narrow = tuple(replace(one, summed_bytes=one.whole_bytes, widening=1) for one in cost.sharding.groups)
    narrow_sum = replace(cost, sharding=Sharding(narrow, cost.sharding.owned, cost.sharding.padding_bytes))
    lifted = sum(one.summed_bytes - one.whole_bytes for one in cost.sharding.groups)
    (here,), (there,) = (
        [moment.nbytes for moment in replay(one).instants if (moment.phase, moment.site) == ("forward", "head")]
        for one in (cost, narrow_sum)
    )
    assert here - there == lifted


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
@pytest.mark.parametrize("reshard", [True, False])
def test_a_device_has_the_gathered_part_of_shards_on_the_host_and_no_more(dtype: str | None, reshard: bool) -> None:
    here = ledger(dtype, reshard=reshard)
    away = ledger(dtype, reshard=reshard, on_host=True)
    assert communications(away) == communications(here)
    assert away.parameter_bytes == here.parameter_bytes > 0
    assert away.optimizer_state_bytes == here.optimizer_state_bytes > 0
    resting = here.parameter_bytes + here.optimizer_state_bytes
    assert here.held_bytes - away.held_bytes == resting
    largest = max(group.whole_bytes // group.ranks for group in here.sharding.groups)
    (first, *_, last), (its_first, *_, its_last) = replay(here).instants, replay(away).instants
    assert first.nbytes - its_first.nbytes == resting
    figures = 4 + away.reported_norm_bytes  # the sum of the losses, and the norms of two blocks
    assert (its_last.phase, its_last.nbytes) == ("update", away.held_bytes + figures)
    for one, other in zip(replay(here).instants, replay(away).instants, strict=True):
        # Shards on their way up are all that comes to it; gradients on their way down go.
        assert 0 < other.nbytes <= one.nbytes - resting + largest
    assert last.nbytes > resting
    assert replay(away).saved_bytes == replay(here).saved_bytes
