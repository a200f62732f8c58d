"""The watch of updates over ranks: honest runs pass, and a fault of one rank in one step is seen by all."""

from collections.abc import Mapping
from typing import Any

import pytest

from support.ranks import compute
from support.ranks.equality import DEEP
from support.ranks.watched import FAULTS, FAULTY, STEPS

pytestmark = pytest.mark.slow

MIXTURE = {"n_expert": 4, "n_expert_active": 2}
HONEST: Mapping[str, Mapping[str, Any]] = {
    "data_parallel": {},
    "zero_optimizer": {},
    "fully_sharded": {},
    "fully_sharded:mixed_precision=true": {},
    "tensor_parallel": {},
    "tensor_parallel+sequence_parallel": {},
    "pipeline_parallel:micro_batches=2": {},
    "expert_parallel+data_parallel": MIXTURE,
    "data_parallel+lora:targets=attention": MIXTURE,
    "zero_optimizer+lora": {},
    "fully_sharded+lora": {},
    "fully_sharded+lion": {},
    "data_parallel+muon": {},
    "zero_optimizer+bf16_full": {},
    "data_parallel+fp16_mixed": {},
    "fully_sharded+tensor_parallel:degree=2": {},
    "pipeline_parallel:degree=2,micro_batches=2+data_parallel": {},
}
"""Changes of the model by stack; those of a degree run over four ranks."""
WRONG = [(stack, fault) for stack in ("fully_sharded", "zero_optimizer", "fully_sharded+lora") for fault in FAULTS]


def case(stack: str, fault: str = "") -> dict[str, Any]:
    run = {
        "model": {**DEEP, "dropout": 0.1, **HONEST[stack]},
        "training": {"batch_size": 8, "steps": STEPS, "warmup_steps": 2, "learning_rate": 1e-2},
        "device": "cpu",
        "ranks": 4 if "degree" in stack else 2,
        "optimizations": stack.split("+"),
    }
    return {"answered_by": "support.ranks.watched:answer", "run": run, "dtype": "float32", "fault": fault}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, str], Any]:
    """What the watch said of each stack and fault; computed in one set of processes."""
    asked = [*((stack, "") for stack in HONEST), *WRONG]
    return dict(zip(asked, compute([case(*one) for one in asked], tmp_path_factory.mktemp("watched")), strict=True))


@pytest.mark.parametrize("stack", HONEST)
def test_an_honest_run_passes(answers: Mapping[tuple[str, str], Any], stack: str) -> None:
    assert answers[stack, ""]["said"] == ""
    assert answers[stack, ""]["updates"] >= STEPS - 2  # float16 may skip its first ones


@pytest.mark.parametrize(("stack", "fault"), WRONG)
def test_a_fault_of_one_rank_is_seen_in_its_step(
    answers: Mapping[tuple[str, str], Any], stack: str, fault: str
) -> None:
    said = answers[stack, fault]["said"]
    assert said.endswith("on rank 1")
    assert f"step {FAULTY}" in said or f"step {FAULTY + 1}" in said
