"""Every technique over ranks, alone and stacked, against one device: equal losses, norms, weights; and its proof.

More of the same, for whoever has the time, is in `test_more_equality`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from assay.config import Spec
from assay.hardware import Machine
from assay.optimizations import Conflict, Unavailable, catalogue, resolve
from assay.records.trace import Trace
from optimizations import test_expert_parallel_step as test_experts
from optimizations.laboratory import ON_ONE_DEVICE, run_with, traced
from parallel.on_ranks import compute

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
MODEL = {"n_layer": 2, "n_head": 4, "n_embd": 32, "context_length": 16, "vocab_size": 65}
"""65 tokens divide by nothing, as a character vocabulary may."""

DEEP = {**MODEL, "n_layer": 4}
"""For pipelines: two stages on each of two ranks."""

STEPS, FEWER_STEPS = 20, 5
"""The second for what is only stacked on a technique, and in float64."""

SCHEDULES = tuple(f"pipeline_parallel:schedule={one}" for one in ("gpipe", "1f1b", "interleaved", "zero-bubble"))
TECHNIQUES = ("data_parallel", "fully_sharded", "tensor_parallel", "zero_optimizer", "pipeline_parallel")
STACKED = ("activation_checkpointing", "gradient_accumulation:micro_batches=2")
BESIDE_TENSOR = ("sequence_parallel+tensor_parallel",)
"""What is a technique only together with another."""
ON_TWO = (
    *TECHNIQUES[:4],
    "fully_sharded:reshard=false",
    *SCHEDULES,
    "pipeline_parallel:split=3-1",
    *BESIDE_TENSOR,
    "gathered_context",
    "data_parallel+smaller_batch",
    *(f"{one}+deferred_metrics" for one in ("zero_optimizer", "pipeline_parallel")),
    "data_parallel+loader_workers",
    *(f"{one}+{STACKED[0]}" for one in (*TECHNIQUES, *BESIDE_TENSOR)),
    *(f"{one}+{STACKED[1]}" for one in (*TECHNIQUES[:4], *BESIDE_TENSOR)),
)
CROSSED = (
    "fully_sharded+tensor_parallel",
    "pipeline_parallel+data_parallel",
    "pipeline_parallel:schedule=interleaved,micro_batches=2+tensor_parallel",
)
ON_FOUR = (
    *CROSSED,
    "sequence_parallel+tensor_parallel+data_parallel",
    "zero_optimizer+tensor_parallel",
    "gathered_context+data_parallel",
)
LOSSY = (
    *(f"{one}+bf16_mixed" for one in (*TECHNIQUES, *BESIDE_TENSOR)),
    "fully_sharded:mixed_precision=true",
    "fully_sharded:mixed_precision=true+gradient_accumulation:micro_batches=2",
)


def case(stack: str, ranks: int, dtype: str) -> dict[str, Any]:
    """One stack on so many ranks."""
    training = {"batch_size": 8, "steps": STEPS, "warmup_steps": 2}
    model = DEEP if "pipeline" in stack or "deep" in stack else MODEL
    listed = [one for one in stack.split("+") if one not in ("", "deep")]
    run = {"model": model, "training": training, "device": "cpu", "ranks": ranks, "optimizations": listed}
    return {"run": run, "steps": steps_of(stack, dtype), "dtype": dtype, "whole": True}


def asked(stacks: Sequence[str], ranks: int) -> list[tuple[str, int, str]]:
    """With ranks and dtype; what is only stacked on a technique is not computed in float64 as well."""
    both = ("float32", "float64")
    return [(stack, ranks, dtype) for stack in stacks for dtype in both if exact(stack) or dtype == both[0]]


def steps_of(stack: str, dtype: str = "float32") -> int:
    """As many as what it is held against."""
    return STEPS if exact(stack) and dtype == "float32" else FEWER_STEPS


def exact(stack: str) -> bool:
    """Whether a stack is held against one device in float64, too."""
    return stack in ("", "deep", *CROSSED, *BESIDE_TENSOR) or (stack in ON_TWO and "+" not in stack)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, str], Any]:
    """Every stack on its ranks, and what it is held against: the same stack without what divides it."""
    alone = {alone_of(stack) for stack in (*ON_TWO, *ON_FOUR, *LOSSY)}
    wanted = [*asked(sorted(alone), 1), *asked((*ON_TWO, *LOSSY), 2), *asked(ON_FOUR, 4)]
    answers = compute([case(*one) for one in wanted], tmp_path_factory.mktemp("ranks"))
    return {(stack, dtype): answer for (stack, _, dtype), answer in zip(wanted, answers, strict=True)}


def alone_of(stack: str) -> str:
    """What is left of a stack on one device; a deeper model is another one."""
    kept = [
        one
        for one in stack.split("+")
        if not one.startswith(("data_", "fully_", "tensor_", "pipeline_", "sequence_", "zero_", "gathered_"))
    ]
    return "+".join([*kept, *(["deep"] if "pipeline" in stack else [])])


@pytest.mark.parametrize("stack", [*ON_TWO, *ON_FOUR])
def test_losses_and_norms_are_those_of_one_device(found: Mapping[tuple[str, str], Any], stack: str) -> None:
    for dtype, within in (("float32", 1e-5), ("float64", 1e-12)):
        if dtype == "float64" and not exact(stack):
            continue
        assert len(found[stack, dtype]["losses"]) == steps_of(stack, dtype)
        agree(found[stack, dtype], found[alone_of(stack), dtype], within)


def agree(here: Any, there: Any, within: float) -> None:
    """Over the steps that are there; `there` may have more, and an evaluation belongs to the last."""
    steps = len(here["losses"])
    assert here["losses"] == pytest.approx(there["losses"][:steps], rel=within)
    assert here["norms"] == pytest.approx(there["norms"][:steps], abs=10 * within)
    for mine, other in zip(here["activations"], there["activations"], strict=False):
        assert mine == pytest.approx(other, rel=10 * within)
    if steps == len(there["losses"]):
        assert here["evaluation"] == pytest.approx(there["evaluation"], rel=within)


@pytest.mark.parametrize("stack", [stack for stack in (*ON_TWO, *ON_FOUR) if exact(stack)])
def test_final_weights_are_those_of_one_device(found: Mapping[tuple[str, str], Any], stack: str) -> None:
    same_weights(*(found[one, "float64"]["weights"] for one in (stack, alone_of(stack))))


def same_weights(here: Mapping[str, Sequence[float]], there: Mapping[str, Sequence[float]]) -> None:
    """But for key biases."""
    assert here.keys() == there.keys()
    for name, weight in there.items():
        # A key bias has no gradient but rounding, which Adam makes into full steps.
        if not name.endswith("qkv.bias"):
            assert math.dist(here[name], weight) <= 1e-5 * math.hypot(*weight), name


@pytest.mark.parametrize("stack", LOSSY)
def test_bfloat16_stays_near(found: Mapping[tuple[str, str], Any], stack: str) -> None:
    here, there = (found[one, "float32"]["losses"] for one in (stack, alone_of(stack)))
    assert len(here) == FEWER_STEPS
    assert here == pytest.approx(there[:FEWER_STEPS], rel=2e-3)


@pytest.mark.parametrize("stack", [*ON_TWO, *ON_FOUR, *LOSSY])
def test_every_rank_proves_every_technique(found: Mapping[tuple[str, str], Any], stack: str) -> None:
    for rank in found[stack, "float32"]["ranks"]:
        assert len(rank["evidence"]) == len(stack.split("+"))
        for evidence in rank["evidence"]:
            assert evidence["verdict"], evidence["observed"]


@pytest.mark.parametrize(
    ("name", "stack"), [("sequence_parallel", "tensor_parallel"), ("zero_optimizer", "data_parallel")]
)
def test_what_it_goes_beyond_is_no_proof_of_it(found: Mapping[tuple[str, str], Any], name: str, stack: str) -> None:
    seen = found[stack, "float32"]["ranks"][0]["trace"]
    trace = Trace.model_validate_json(json.dumps({**seen, "operations": []}))
    evidence = resolve(Spec(name=name)).verify(trace, run_with())
    assert not evidence.verdict, evidence.observed


@pytest.mark.parametrize("name", [name for name in catalogue() if name not in ON_ONE_DEVICE])
def test_it_is_refuted_on_one_device(name: str) -> None:
    run = run_with()
    evidence = resolve(Spec(name=name)).verify(traced(run), run)
    assert not evidence.verdict, evidence.observed


@pytest.mark.parametrize("name", [name for name in catalogue() if name not in ON_ONE_DEVICE])
def test_every_technique_is_held_against_one_device(name: str) -> None:
    try:
        resolve(Spec(name=name)).check(run_with(), CPU)
    except Unavailable as reason:
        pytest.skip(str(reason))
    except Conflict:
        pass  # it is held against one device beside what it needs
    held = (*filter(exact, ON_TWO), *test_experts.EXACT)
    assert any(one.startswith(name) for stack in held for one in stack.split("+"))
