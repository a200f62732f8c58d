"""A mixture of experts over ranks against one device: divided by experts, by batch, by matrices, by stages."""

from collections.abc import Mapping
from typing import Any

import pytest

from assay.config import ModelConfig, Spec
from assay.hardware import Machine
from assay.optimizations import Conflict, check, resolve
from support.ranks import compute
from support.ranks.equality import EXPERTS_EXACT as EXACT
from support.ranks.equality import MORE_STEPS, STEPS, same_weights
from support.runs import SHAPE, run_with
from support.steps import traced

MACHINE = Machine(processor="any", cores=2, memory_bytes=2**34)
MODEL = {"n_layer": 2, "n_head": 2, "n_embd": 32, "context_length": 16, "vocab_size": 65, "n_expert": 4}
TECHNIQUES = (
    "expert_parallel",
    "data_parallel",
    "zero_optimizer",
    "fully_sharded",
    "tensor_parallel",
    "pipeline_parallel",
)

STACKED = (
    "expert_parallel+data_parallel+activation_checkpointing+sdpa_attention",
    "expert_parallel+data_parallel+gradient_accumulation:micro_batches=2",
    "expert_parallel+zero_optimizer",
)
LOSSY = "expert_parallel+data_parallel+bf16_mixed"
ON_FOUR = ("expert_parallel:degree=4+fully_sharded", "pipeline_parallel+expert_parallel+data_parallel")

Found = Mapping[tuple[str, str], Any]


def case(stack: str, ranks: int, dtype: str, steps: int) -> dict[str, Any]:
    """One stack on so many ranks; batches of eight, and a balance loss that is felt."""
    run = {
        "model": {**MODEL, "router_loss": 0.1},
        "training": {"batch_size": 8, "steps": MORE_STEPS, "warmup_steps": 2},
        "device": "cpu",
        "ranks": ranks,
        "optimizations": stack.split("+") if stack else [],
    }
    return {
        "run": run,
        "steps": steps,
        "dtype": dtype,
        "whole": True,
        "traced": ranks > 1 and dtype == proven_in(stack),
    }


def proven_in(stack: str) -> str:
    """The dtype in which a stack's techniques are proven."""
    return "float32" if stack == LOSSY else "float64"


def alone_of(stack: str) -> str:
    """What is left of a stack on one device."""
    if stack.startswith("pipeline_parallel"):
        # Balance is that of a micro-batch, and a pipeline has four.
        return "gradient_accumulation:micro_batches=4"
    return "+".join(one for one in stack.split("+") if not one.startswith(TECHNIQUES))


@pytest.fixture(scope="module", params=[STEPS, pytest.param(MORE_STEPS, marks=pytest.mark.slow)])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """Every stack on its ranks, and what is left of it on one device."""
    wanted = [(stack, "float64") for stack in (*EXACT, *STACKED, *ON_FOUR)]
    wanted += [(EXACT[0], "float32"), (LOSSY, "float32")]
    alone = sorted({(alone_of(stack), dtype) for stack, dtype in wanted})
    cases = [case(stack, 1, dtype, request.param) for stack, dtype in alone]
    cases += [case(stack, 4 if stack in ON_FOUR else 2, dtype, request.param) for stack, dtype in wanted]
    return dict(zip((*alone, *wanted), compute(cases, tmp_path_factory.mktemp("experts")), strict=True))


@pytest.mark.parametrize("stack", [*EXACT, *STACKED, *ON_FOUR])
def test_losses_norms_and_weights_are_those_of_one_device(found: Found, stack: str) -> None:
    here, there = found[stack, "float64"], found[alone_of(stack), "float64"]
    assert len(here["losses"]) in (STEPS, MORE_STEPS)
    assert here["losses"] == pytest.approx(there["losses"], rel=1e-12)
    assert here["norms"] == pytest.approx(there["norms"], abs=1e-11)
    assert len(here["routers"]) == MODEL["n_layer"]
    for mine, other in zip(here["routers"], there["routers"], strict=True):
        assert mine["tokens"] == other["tokens"]
        assert mine["balance"] == pytest.approx(other["balance"], rel=1e-9)
    assert here["evaluation"] == pytest.approx(there["evaluation"], rel=1e-12)
    same_weights(here["weights"], there["weights"])


def test_float32_losses_are_those_of_one_device(found: Found) -> None:
    here, there = found[EXACT[0], "float32"], found["", "float32"]
    assert here["losses"] == pytest.approx(there["losses"], rel=1e-5)
    assert here["evaluation"] == pytest.approx(there["evaluation"], rel=1e-5)


def test_bfloat16_stays_near(found: Found) -> None:
    here, there = (found[stack, "float32"]["losses"] for stack in (LOSSY, alone_of(LOSSY)))
    assert here == pytest.approx(there, rel=2e-3)


@pytest.mark.parametrize("stack", [*EXACT, *STACKED, *ON_FOUR, LOSSY])
def test_every_rank_proves_every_technique(found: Found, stack: str) -> None:
    for rank in found[stack, proven_in(stack)]["ranks"]:
        assert len(rank["evidence"]) == len(stack.split("+"))
        for evidence in rank["evidence"]:
            assert evidence["verdict"], evidence["observed"]


MIXTURE = ModelConfig.model_validate({**SHAPE.model_dump(), "n_expert": 4})


def test_whole_experts_on_one_device_are_no_proof() -> None:
    run = run_with(model=MIXTURE)
    evidence = resolve(Spec(name="expert_parallel")).verify(traced(run), run)
    assert not evidence.verdict
    assert "; 0 bytes exchanged over dp" in evidence.observed


@pytest.mark.parametrize(
    ("model", "stack", "says"),
    [
        ({"n_expert": None}, "expert_parallel+data_parallel", "the model has none; set model.n_expert"),
        ({"n_expert": 3}, "expert_parallel+data_parallel", "does not divide the model's 3 experts"),
        (
            {"expert_capacity": 1.0},
            "expert_parallel+data_parallel",
            "drop other tokens than one device; leave out model.expert_capacity",
        ),
        ({}, "expert_parallel", "the step's replicas; add data_parallel or fully_sharded"),
        ({}, "expert_parallel+data_parallel+tensor_parallel", "both replace the step's experts"),
    ],
)
def test_an_impossible_layout_of_experts_is_refused(model: dict[str, Any], stack: str, says: str) -> None:
    fields = {**MIXTURE.model_dump(), **model}
    specs = [Spec.parse(one) for one in stack.split("+")]
    run = run_with(model=ModelConfig.model_validate(fields))
    ranks = 4 if "tensor" in stack else 2
    with pytest.raises(Conflict, match=says):
        check(run.model_copy(update={"optimizations": tuple(specs), "ranks": ranks}), MACHINE)
