"""What is not finite on one rank only is named alike by all, and none is left waiting for another."""

from pathlib import Path
from typing import Any

from support.ranks import compute

MODEL = {"n_layer": 4, "n_head": 2, "n_embd": 16, "context_length": 16, "vocab_size": 65}
HUGE = 3.4e38

CASES = {
    "fully_sharded": ((1, "blocks.2.mlp.up.weight", float("inf")), "the weight blocks.2.mlp.up.weight"),
    "data_parallel": ((1, "blocks.2.mlp_norm.weight", HUGE), "the output of blocks.2.mlp_norm"),
    "tensor_parallel": ((1, "blocks.2.mlp_norm.weight", HUGE), "the output of blocks.2.mlp_norm"),
    "pipeline_parallel": ((1, "blocks.2.mlp_norm.weight", HUGE), "the output of blocks.2.mlp_norm"),
    "pipeline_parallel:schedule=gpipe": ((0, "blocks.1.mlp.up.bias", float("nan")), "the weight blocks.1.mlp.up.bias"),
}


def case(stack: str) -> dict[str, Any]:
    training = {"batch_size": 8, "steps": 2, "warmup_steps": 1}
    run = {"model": MODEL, "training": training, "device": "cpu", "ranks": 2, "optimizations": [stack]}
    return {"run": run, "steps": 2, "dtype": "float32", "broken": CASES[stack][0]}


def test_all_ranks_name_the_same_tensor(tmp_path: Path) -> None:
    answers = compute([case(stack) for stack in CASES], tmp_path)
    found = {stack: [rank["named"] for rank in answer["ranks"]] for stack, answer in zip(CASES, answers, strict=True)}
    assert found == {stack: [[False, said, said]] * 2 for stack, (_, said) in CASES.items()}
