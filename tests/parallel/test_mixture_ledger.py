"""What ranks hold and send of a mixture: exact where routers have no choice, within their imbalance where they have."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.config import validate
from assay.estimator import Estimate, estimate
from support.ranks import compute, settled_peaks
from support.ranks.ledger import MACHINE, handed, payloads, run_with

EXPERTS, LAYERS, RANKS = 4, 2, 2
ALL, SOME = {"n_expert_active": EXPERTS}, {"router_loss": 0.1}
"""Every token goes to every expert; or to two of them."""
UNALIGNED = {"n_expert_active": 1, "activation": "swiglu", "n_hidden": 72}
"""Halves of 36 hidden units are none that a grouped product takes."""

CERTAIN: Mapping[str, Mapping[str, Any]] = {
    "expert_parallel+data_parallel+gradient_accumulation:micro_batches=2": ALL,
    "expert_parallel+fully_sharded+activation_checkpointing": ALL,
    "expert_parallel+fully_sharded:reshard=false+bf16_mixed+sdpa_attention": ALL,
    "tensor_parallel+bf16_mixed+activation_checkpointing": SOME,
    "tensor_parallel+activation_checkpointing": UNALIGNED,
}
"""Under tensor parallelism every rank has all rows, wherever they go."""
ROUTED = {"expert_parallel+data_parallel": SOME}


def run_of(stack: str) -> dict[str, Any]:
    run, model = run_with(stack, RANKS), {**CERTAIN, **ROUTED}[stack]
    return run | {"model": {**run["model"], "n_layer": LAYERS, "n_expert": EXPERTS, **model}}


def case(stack: str) -> dict[str, Any]:
    # Where routers choose, each step has a peak of its own, and none is seen twice.
    once = {"peak_tries": 1} if stack in ROUTED else {}
    return {"run": run_of(stack), "steps": 2, "dtype": "float32", "peaks": True} | once


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    stacks = (*CERTAIN, *ROUTED)
    return dict(zip(stacks, compute(list(map(case, stacks)), tmp_path_factory.mktemp("ranks")), strict=True))


def predicted(stack: str, rank: int) -> Estimate:
    return estimate(validate(run_of(stack)), MACHINE, rank)


@pytest.mark.parametrize("stack", CERTAIN)
def test_all_is_predicted_where_routers_have_no_choice(found: Mapping[str, Any], stack: str, tmp_path: Path) -> None:
    ranks = found[stack]["ranks"]
    expected = [predicted(stack, rank) for rank in range(len(ranks))]
    assert list(map(handed, ranks)) == list(map(payloads, expected))
    near = pytest.approx([one.timeline.peak.nbytes for one in expected], rel=0.005)
    assert settled_peaks(ranks, case(stack), near, tmp_path) == near


@pytest.mark.parametrize("stack", [*CERTAIN, *ROUTED])
def test_memory_held_between_steps_is_predicted(found: Mapping[str, Any], stack: str) -> None:
    for rank, measured in enumerate(found[stack]["ranks"]):
        expected, trace = predicted(stack, rank).cost, measured["trace"]
        assert trace["memory"]["parameter_bytes"] == trace["memory"]["gradient_bytes"] == expected.parameter_bytes
        assert trace["memory"]["optimizer_state_bytes"] == expected.optimizer_state_bytes


@pytest.mark.parametrize("stack", ROUTED)
def test_a_full_rank_exchanges_its_surplus_beside_what_is_predicted(found: Mapping[str, Any], stack: str) -> None:
    tokens = [layer["tokens"] for layer in found[stack]["routers"]]
    assert len({tuple(layer) for layer in tokens}) == LAYERS
    for rank, measured in enumerate(found[stack]["ranks"]):
        sent, expected = handed(measured), payloads(predicted(stack, rank))
        own = slice(rank * EXPERTS // RANKS, (rank + 1) * EXPERTS // RANKS)
        surplus = sum(max(0, sum(layer[own]) - sum(layer) // RANKS) for layer in tokens)
        # Rows of float32, there and back, and their gradients.
        expected["all_to_all", "dp"] += 4 * 4 * run_of(stack)["model"]["n_embd"] * surplus
        assert sent == expected


@pytest.mark.parametrize("stack", ROUTED)
def test_a_rank_holds_more_or_less_than_predicted_by_its_share_of_the_rows(
    found: Mapping[str, Any], stack: str
) -> None:
    fullest = max(max(layer["tokens"]) * EXPERTS / sum(layer["tokens"]) for layer in found[stack]["routers"])
    for rank, measured in enumerate(found[stack]["ranks"]):
        assert predicted(stack, rank).timeline.peak.nbytes == pytest.approx(measured["peak"], rel=fullest - 1)
