"""Selective checkpointing: bit-equal, kept and repeated as predicted, to the byte and the FLOP."""

import pytest
import torch
from torch import nn

from assay.api import configure
from assay.config import ModelConfig, Spec
from assay.estimator import estimate
from assay.hardware import Machine
from assay.instruments.memory.memory_pass import live_tensor_bytes, memory_pass
from assay.model import Attention, Block
from assay.optimizations import Conflict, Unavailable, check, resolve
from assay.optimizations import selective_checkpointing as technique
from assay.training.loop import train_step
from support.runs import SHAPE, run_with
from support.steps import build_step, losses, traced
from support.swapped import proof_of, traced_after

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
POLICIES = ("attention", "matmuls")
VARIANT = SHAPE.model_copy(
    update={
        "n_kv_head": 1,
        "position": "rotary",
        "norm": "rms",
        "activation": "swiglu",
        "norm_position": "post",
        "qk_norm": True,
    }
)
DROPPED = SHAPE.model_copy(update={"dropout": 0.2})


def selective(policy: str) -> Spec:
    return Spec(name="selective_checkpointing", fields={"policy": policy})


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("model", [SHAPE, VARIANT, DROPPED], ids=["gpt2", "variant", "dropout"])
def test_losses_are_bit_equal(policy: str, model: ModelConfig) -> None:
    assert losses(run_with(selective(policy), model=model)) == losses(run_with(model=model))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("beside", ["", "sdpa_attention", "bf16_mixed", "gradient_accumulation"])
@pytest.mark.parametrize("model", [SHAPE, VARIANT, DROPPED], ids=["gpt2", "variant", "dropout"])
def test_saved_bytes_and_flops_are_predicted_exactly(policy: str, beside: str, model: ModelConfig) -> None:
    if beside == "sdpa_attention" and model.dropout > 0:
        pytest.skip("the fused kernel has no dropout on a CPU")
    run = run_with(selective(policy), *([Spec(name=beside)] if beside else []), model=model)
    predicted, trace = estimate(run, CPU), traced(run)
    assert predicted.timeline.saved_bytes == trace.memory.saved_total_bytes
    assert predicted.step_flops == sum(one.flops for one in trace.operations)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_peak_and_its_instant_are_the_measured_ones(policy: str) -> None:
    # A small vocabulary, so that the peak is a block's.
    shape = ["model.vocab_size=16", "model.context_length=128", "device=cpu"]
    run = configure("demo", shape, [f"selective_checkpointing:policy={policy}"])
    predicted = estimate(run, CPU).timeline.peak
    device, step = torch.device("cpu"), build_step(run)
    before = live_tensor_bytes(device) - sum(parameter.nbytes for _, parameter in step.named_parameters())
    for index in range(2):
        train_step(step, index)
    measured = memory_pass(device, lambda: (train_step(step, 2), None)[1], live_tensor_bytes(device) - before)
    print(f"{policy}: predicted {predicted.nbytes} ({predicted}), measured {measured}")
    assert predicted.nbytes == pytest.approx(measured.tensors_peak_bytes, rel=0.005)
    assert measured.tensors_peak_instant == predicted.label


def test_each_keeps_less_than_the_baseline_and_more_than_full_checkpointing() -> None:
    kept = {
        name: estimate(run_with(*specs), CPU).timeline.saved_bytes
        for name, specs in {
            "none": (),
            "full": (Spec(name="activation_checkpointing"),),
            **{policy: (selective(policy),) for policy in POLICIES},
        }.items()
    }
    assert kept["full"] < min(kept["attention"], kept["matmuls"])
    assert max(kept["attention"], kept["matmuls"]) < kept["none"]


@pytest.mark.parametrize("policy", POLICIES)
def test_neither_full_checkpointing_nor_the_other_policy_is_its_proof(policy: str) -> None:
    (other,) = set(POLICIES) - {policy}
    run = run_with(selective(policy))
    for spec in (selective(other), Spec(name="activation_checkpointing")):
        evidence = resolve(selective(policy)).verify(traced(run_with(spec)), run)
        assert not evidence.verdict, evidence.observed


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("layers", [2, 5, 7])
def test_one_block_of_several_is_no_proof(policy: str, layers: int) -> None:
    def only_the_first(part: nn.Module) -> None:
        kind = Block if policy == "matmuls" else Attention
        for module in [one for one in part.modules() if isinstance(one, kind)][1:]:
            again = module.core if isinstance(module, Attention) else module
            again.__class__ = type(again).__bases__[0]

    run = run_with(selective(policy), model=SHAPE.model_copy(update={"n_layer": layers}))
    assert not proof_of(run, traced_after(only_the_first, run)).verdict


@pytest.mark.parametrize(("layers", "every"), [(5, 5), (1, 1)])
@pytest.mark.parametrize("policy", POLICIES)
def test_whole_blocks_that_run_again_are_no_proof(policy: str, layers: int, every: int) -> None:
    model = SHAPE.model_copy(update={"n_layer": layers})
    trace = traced(run_with(Spec(name="activation_checkpointing", fields={"every": every}), model=model))
    assert not resolve(selective(policy)).verify(trace, run_with(model=model)).verdict


def test_one_product_a_block_runs_again_or_none() -> None:
    observed = {one: resolve(selective(one)).verify(traced(run_with(selective(one))), run_with()) for one in POLICIES}
    assert observed["attention"].observed.startswith("4 matmuls and 12 other computations of 4 blocks")
    assert observed["matmuls"].observed.startswith("0 matmuls and 28 other computations of 4 blocks")


def test_a_combination_that_was_not_proven_is_refused() -> None:
    ranks = run_with().model_copy(
        update={"ranks": 2, "optimizations": (selective("attention"), Spec(name="data_parallel"))}
    )
    with pytest.raises(Conflict, match="with several ranks use activation_checkpointing"):
        check(ranks, CPU)
    mixture = SHAPE.model_copy(update={"n_expert": 4, "n_expert_active": 2})
    with pytest.raises(Conflict, match="use policy=attention"):
        check(run_with(selective("matmuls"), model=mixture), CPU)
    check(run_with(selective("attention"), model=mixture), CPU)
    with pytest.raises(Conflict, match="both replace the step's recomputation"):
        check(run_with(selective("matmuls"), Spec(name="activation_checkpointing")), CPU)


def test_an_older_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(technique, "torch_version", lambda: "2.12.1+cu130")
    with pytest.raises(Unavailable, match=r"needs torch 2\.13, which tells a policy each result"):
        check(run_with(selective("matmuls")), CPU)
    check(run_with(selective("attention")), CPU)
    monkeypatch.setattr(technique, "torch_version", lambda: None)  # predictions need no torch
    check(run_with(selective("matmuls")), CPU)
