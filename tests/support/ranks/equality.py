"""Stacks over ranks that are compared with one device, and the comparison."""

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

MODEL = {"n_layer": 2, "n_head": 4, "n_embd": 32, "context_length": 16, "vocab_size": 65}
"""65 tokens divide by nothing, as a character vocabulary may."""

DEEP = {**MODEL, "n_layer": 4}
"""For pipelines: two stages on each of two ranks."""

STEPS, MORE_STEPS = 5, 20
"""The second in the slow suite."""

SCHEDULES = tuple(f"pipeline_parallel:schedule={one}" for one in ("gpipe", "1f1b", "interleaved", "zero-bubble"))
TECHNIQUES = ("data_parallel", "fully_sharded", "tensor_parallel", "zero_optimizer", "pipeline_parallel")
STACKED = ("activation_checkpointing", "gradient_accumulation:micro_batches=2")
BESIDE_TENSOR = ("sequence_parallel+tensor_parallel",)
"""What is a technique only together with another."""

ON_TWO = (
    *TECHNIQUES[:4],
    *SCHEDULES[2:],
    *BESIDE_TENSOR,
    "gathered_context",
    "data_parallel+smaller_batch",
    "pipeline_parallel+deferred_metrics",
    "data_parallel+loader_workers",
    *(f"{one}+{STACKED[0]}" for one in ("fully_sharded", *BESIDE_TENSOR)),
    *(f"{one}+{STACKED[1]}" for one in ("data_parallel", "fully_sharded")),
)
MORE_ON_TWO = (
    "fully_sharded:reshard=false",
    *SCHEDULES[:2],
    "pipeline_parallel:split=3-1",
    "zero_optimizer+deferred_metrics",
    *(f"{one}+{STACKED[0]}" for one in ("data_parallel", "tensor_parallel", "zero_optimizer", "pipeline_parallel")),
    *(f"{one}+{STACKED[1]}" for one in ("tensor_parallel", "zero_optimizer", *BESIDE_TENSOR)),
)
"""In the slow suite, which also has what a technique is stacked on."""
CROSSED = ("fully_sharded+tensor_parallel", "pipeline_parallel+data_parallel")
MORE_CROSSED = ("pipeline_parallel:schedule=interleaved,micro_batches=2+tensor_parallel",)
ON_FOUR = (*CROSSED, "gathered_context+data_parallel")
MORE_ON_FOUR = ("sequence_parallel+tensor_parallel+data_parallel", "zero_optimizer+tensor_parallel")
LOSSY = (
    *(f"{one}+bf16_mixed" for one in ("data_parallel", "fully_sharded", "pipeline_parallel")),
    "fully_sharded:mixed_precision=true+gradient_accumulation:micro_batches=2",
)
MORE_LOSSY = (
    *(f"{one}+bf16_mixed" for one in ("tensor_parallel", "zero_optimizer", *BESIDE_TENSOR)),
    "fully_sharded:mixed_precision=true",
)
"""In the slow suite."""
EXPERTS_EXACT = ("expert_parallel+data_parallel", "expert_parallel+fully_sharded", "tensor_parallel")
"""Stacks of a mixture of experts, in `tests/optimizations/test_expert_parallel_step.py`."""


def case(stack: str, ranks: int, dtype: str) -> dict[str, Any]:
    """One stack on so many ranks."""
    training = {"batch_size": 8, "steps": MORE_STEPS, "warmup_steps": 2}
    model = DEEP if "pipeline" in stack or "deep" in stack else MODEL
    listed = [one for one in stack.split("+") if one not in ("", "deep")]
    run = {"model": model, "training": training, "device": "cpu", "ranks": ranks, "optimizations": listed}
    return {"run": run, "steps": STEPS, "dtype": dtype, "whole": True, "traced": ranks > 1}


def dtype_of(stack: str) -> str:
    """Return the dtype in which the quick suite holds a stack against one device."""
    return "float64" if exact(stack) else "float32"


ALONE = ("", "deep")
"""Nothing but a model on one device."""


def exact(stack: str) -> bool:
    """Whether a stack is held against one device in float64, which sees far smaller errors."""
    return stack in (*ALONE, *CROSSED, *MORE_CROSSED, *BESIDE_TENSOR) or (
        stack in (*ON_TWO, *MORE_ON_TWO) and "+" not in stack
    )


def alone_of(stack: str) -> str:
    """What is left of a stack on one device; a deeper model is another one."""
    kept = [
        one
        for one in stack.split("+")
        if not one.startswith(("data_", "fully_", "tensor_", "pipeline_", "sequence_", "zero_", "gathered_"))
    ]
    return "+".join([*kept, *(["deep"] if "pipeline" in stack else [])])


def agree(here: Any, there: Any, within: float) -> None:
    """Losses and norms of every step, and an evaluation after them, are equal within a relative error."""
    assert here["losses"] == pytest.approx(there["losses"], rel=within)
    assert here["norms"] == pytest.approx(there["norms"], abs=10 * within)
    for mine, other in zip(here["activations"], there["activations"], strict=True):
        assert mine == pytest.approx(other, rel=10 * within)
    assert here["evaluation"] == pytest.approx(there["evaluation"], rel=within)


def same_weights(here: Mapping[str, str], there: Mapping[str, str]) -> None:
    """But for key biases; weights are bytes of float64 as text."""
    assert here.keys() == there.keys()
    for name, text in there.items():
        # A key bias has no gradient but rounding, which Adam makes into full steps.
        if not name.endswith("qkv.bias"):
            mine, weight = (np.frombuffer(b64decode(one)) for one in (here[name], text))
            assert len(weight) > 0
            assert np.linalg.norm(mine - weight) <= 1e-5 * np.linalg.norm(weight), name
