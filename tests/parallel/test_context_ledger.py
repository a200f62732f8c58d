"""Context parallelism by torch's ring over a CPU's kernel: equal to one device, and its bytes are those predicted."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.config import validate
from assay.estimator import Estimate, estimate
from assay.optimizations import forget, search
from support.ranks import compute, settled_peaks
from support.ranks.ledger import MACHINE, MODEL, handed, payloads

RING = "ring_context+sdpa_attention"
OTHER = {"norm": "rms", "position": "rotary", "qk_norm": True, "activation": "swiglu", "n_kv_head": 2}
WIDE = {"n_hidden": 64, "context_length": 128, "vocab_size": 17}
"""What is highest is then inside attention."""

ON_TWO: Mapping[str, Mapping[str, Any]] = {
    f"{RING}+activation_checkpointing": OTHER,
    f"{RING}+bf16_mixed": WIDE,
    f"{RING}+gradient_accumulation:micro_batches=2": {},
}
ON_FOUR: Mapping[str, Mapping[str, Any]] = {
    f"{RING}+fully_sharded": {},
    "ring_context:degree=4+sdpa_attention": WIDE,
}
STACKS = [*ON_TWO, *ON_FOUR]
PEAKS = STACKS[:-1]
"""Of the last only what is sent and kept: with more ranks than cores a peak takes long to measure."""
EXACT = [stack for stack in STACKS if "bf16" not in stack]


def run_with(stack: str, ranks: int) -> dict[str, Any]:
    training = {"batch_size": 4, "steps": 4, "warmup_steps": 1}
    model = {**MODEL, "n_layer": 2, **(ON_TWO if ranks == 2 else ON_FOUR).get(stack, {})}
    return {"model": model, "training": training, "device": "cpu", "ranks": ranks, "optimizations": stack.split("+")}


def case(stack: str, ranks: int) -> dict[str, Any]:
    # Within 3 %, a peak that is not seen twice will do.
    peaks = {"peaks": stack in PEAKS, "peak_tries": 2}
    return {"run": run_with(stack, ranks), "steps": 2, "dtype": "float32", "whole": stack in EXACT, **peaks}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    cases = {stack: case(stack, 4 if stack in ON_FOUR else 2) for stack in STACKS}
    for stack in EXACT:
        cases[f"alone: {stack}"] = {"run": alone(stack), "steps": 2, "dtype": "float32", "whole": True}
    return dict(zip(cases, compute(list(cases.values()), tmp_path_factory.mktemp("ranks")), strict=True))


def alone(stack: str) -> dict[str, Any]:
    """What a stack is held against: the same on one device."""
    run = run_with(stack, 4 if stack in ON_FOUR else 2)
    kept = [one for one in run["optimizations"] if not one.startswith(("ring_", "fully_"))]
    return {**run, "ranks": 1, "optimizations": kept}


@pytest.fixture(scope="module")
def predicted() -> Any:
    """What a rank of a stack should hold and send."""
    names = search(Path(__file__).parent / "references")
    yield lambda stack, ranks, rank: estimate(validate(run_with(stack, ranks)), MACHINE, rank)
    forget(names)


def every(found: Mapping[str, Any], predicted: Any, stack: str) -> list[tuple[Mapping[str, Any], Estimate]]:
    """By rank, what was measured and what was said."""
    ranks = found[stack]["ranks"]
    return [(measured, predicted(stack, len(ranks), rank)) for rank, measured in enumerate(ranks)]


@pytest.mark.parametrize("stack", STACKS)
def test_payload_and_saved_tensors_of_a_rank_are_predicted_exactly(
    found: Mapping[str, Any], predicted: Any, stack: str
) -> None:
    for measured, said in every(found, predicted, stack):
        trace = measured["trace"]
        assert handed(measured) == payloads(said)
        assert trace["memory"]["parameter_bytes"] == said.cost.parameter_bytes
        assert trace["memory"]["optimizer_state_bytes"] == said.cost.optimizer_state_bytes
        assert sum(trace["memory"]["saved_bytes"].values()) == said.timeline.saved_bytes


@pytest.mark.parametrize("stack", PEAKS)
def test_memory_of_a_rank_is_predicted(found: Mapping[str, Any], predicted: Any, stack: str, tmp_path: Path) -> None:
    both = every(found, predicted, stack)
    near = pytest.approx([said.timeline.peak.nbytes for _, said in both], rel=0.03)
    assert settled_peaks(found[stack]["ranks"], case(stack, len(both)), near, tmp_path) == near


@pytest.mark.parametrize("stack", EXACT)
def test_losses_are_those_of_one_device(found: Mapping[str, Any], stack: str) -> None:
    here, there = found[stack], found[f"alone: {stack}"]
    assert here["losses"] == pytest.approx(there["losses"], rel=1e-5)
    assert here["evaluation"] == pytest.approx(there["evaluation"], rel=1e-5)


def test_every_rank_proves_that_the_ring_ran(found: Mapping[str, Any]) -> None:
    for answer in found.values():
        assert all(evidence["verdict"] for rank in answer["ranks"] for evidence in rank["evidence"])
