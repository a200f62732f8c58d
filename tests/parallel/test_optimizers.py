"""Optimizers of pieces: equal to one device, proven on every rank, their state predicted, and resumed bit for bit."""

from collections.abc import Mapping
from typing import Any

import pytest

from assay.config.loading import validate
from assay.estimator import estimate
from assay.hardware import Machine
from support.ranks import compute
from support.steps import losses

MACHINE = Machine(processor="any", cores=4, memory_bytes=2**34)
MODEL = {"n_layer": 4, "n_head": 2, "n_embd": 32, "context_length": 16, "vocab_size": 65}
STEPS = 3
STACKS = (
    ("data_parallel", "adafactor"),
    ("fully_sharded", "adamw_bf16_state"),
    ("pipeline_parallel", "muon"),
    ("tensor_parallel", "fused_adamw"),
    ("zero_optimizer", "lion"),
    ("fully_sharded", "cautious_decay"),
    ("zero_optimizer", "cautious_decay"),
    ("pipeline_parallel", "normuon"),
)
RESUMED = ("adamw_bf16_state", "muon", "normuon")


def run_of(stack: tuple[str, ...], ranks: int) -> dict[str, Any]:
    training = {"batch_size": 8, "steps": 20, "warmup_steps": 2}
    return {"model": MODEL, "training": training, "device": "cpu", "ranks": ranks, "optimizations": list(stack)}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, ...], Any]:
    cases: list[dict[str, Any]] = []
    for stack in STACKS:
        folder = {"folder": str(tmp_path_factory.mktemp("saved"))} if stack[1] in RESUMED else {}
        cases.append({"run": run_of(stack, 2), "steps": STEPS, "dtype": "float32", **folder})
    return dict(zip(STACKS, compute(cases, tmp_path_factory.mktemp("ranks")), strict=True))


@pytest.mark.parametrize("stack", STACKS, ids="+".join)
def test_losses_are_those_of_one_device(found: Mapping[tuple[str, ...], Any], stack: tuple[str, ...]) -> None:
    alone = losses(validate(run_of(stack[1:], 1)), STEPS)
    assert found[stack]["losses"] == pytest.approx(alone, rel=1e-5)


@pytest.mark.parametrize("stack", STACKS, ids="+".join)
def test_every_rank_proves_it_and_keeps_what_was_predicted(
    found: Mapping[tuple[str, ...], Any], stack: tuple[str, ...]
) -> None:
    for rank, seen in enumerate(found[stack]["ranks"]):
        assert all(evidence["verdict"] for evidence in seen["evidence"]), seen["evidence"]
        if stack[0] != "zero_optimizer":  # which predicts nothing yet
            predicted = estimate(validate(run_of(stack, 2)), MACHINE, rank).cost
            assert seen["trace"]["memory"]["optimizer_state_bytes"] == predicted.optimizer_state_bytes


@pytest.mark.parametrize("stack", [stack for stack in STACKS if stack[1] in RESUMED], ids="+".join)
def test_it_goes_on_from_the_checkpoint_of_its_ranks(
    found: Mapping[tuple[str, ...], Any], stack: tuple[str, ...]
) -> None:
    here, again = found[stack]["resumed"]
    assert here == again
