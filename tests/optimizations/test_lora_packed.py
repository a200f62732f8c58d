"""Adapters beside matrices in 4 bits a number: what a step holds, what is stored, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

from assay.config import ModelConfig, Spec
from assay.cost.rewrites import four_bits
from assay.estimator import estimate
from assay.hardware import Machine
from assay.model import nf4
from assay.optimizations import Conflict, check, model_weights, resolve, resolve_run
from assay.training.checkpoints.state import load_weights, weights_at_rest
from assay.worker.proof.moved import digests, frozen_that_moved
from support.runs import SHAPE, VARIANTS, run_with, specs_of
from support.steps import build_step, losses, measured_peak, micro_batches, saved_bytes, traced

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
NAME = "blocks.2.mlp.up.weight"


def packed(**fields: Any) -> Spec:
    """Adapters beside packed matrices, with some fields."""
    return resolve(Spec(name="lora", fields={"base": "nf4", **fields})).spec()


PEAKS = [
    ("baseline", packed(), ()),
    ("baseline", packed(targets="attention"), ("bf16_mixed",)),
    ("dropout", packed(targets="mlp"), ("bf16_mixed", "activation_checkpointing")),
    ("post", packed(targets="attention"), ("selective_checkpointing", "gradient_accumulation")),
    ("rotary", packed(), ("sdpa_attention", "bf16_mixed", "activation_checkpointing")),
    ("untied", packed(targets="mlp"), ("selective_checkpointing", "gradient_accumulation", "fused_adamw")),
]
"""Variants of the model with a stack."""


@pytest.mark.parametrize(
    ("variant", "spec", "others"),
    [*PEAKS, *(pytest.param(v, packed(), (), marks=pytest.mark.slow) for v in VARIANTS)],
)
def test_the_peak_and_what_is_saved_are_those_of_the_step(variant: str, spec: Spec, others: tuple[str, ...]) -> None:
    run = run_with(spec, *specs_of(others), model=VARIANTS[variant])
    predicted = estimate(run, CPU).timeline
    _, peak, instant = measured_peak(run)
    assert (predicted.peak.nbytes, predicted.peak.label) == (peak, instant)
    if not others:
        assert predicted.saved_bytes == saved_bytes(build_step(run))


@pytest.mark.parametrize(
    ("dropout", "others", "label"),
    [
        (0.1, ("bf16_mixed", "activation_checkpointing"), "recompute: aten.addmm"),
        (0.0, ("selective_checkpointing:policy=matmuls",), "forward: aten.addmm"),
        (0.0, (), "backward: UnpackedProductBackward"),
    ],
)
def test_a_few_blocks_at_once_leave_the_product_as_the_highest_instant(
    dropout: float, others: tuple[str, ...], label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in matrices of many blocks."""
    for module in (four_bits, nf4):
        monkeypatch.setattr(module, "BLOCKS_AT_ONCE", 4)
    shape = {"dropout": dropout, "context_length": 4, "n_embd": 64, "n_layer": 2, "vocab_size": 8}
    stack = [resolve(one).spec() for other in others for one in Spec.parse_stack(other)]
    run = run_with(packed(rank=2), *stack, model=SHAPE.model_copy(update=shape))
    predicted = estimate(run, CPU).timeline.peak
    _, peak, instant = measured_peak(run)
    assert (predicted.nbytes, predicted.label) == (peak, instant)
    assert instant == label


def test_packed_matrices_take_an_eighth_at_rest_and_save_no_copy() -> None:
    trace, plain = (traced(run_with(spec, *specs_of(["bf16_mixed"]))) for spec in (packed(), packed(base="model")))
    numbers = 12 * SHAPE.n_embd**2 * SHAPE.n_layer
    assert plain.memory.parameter_bytes - trace.memory.parameter_bytes == 4 * numbers - numbers * 9 // 16
    copies = plain.memory.saved_total_bytes - trace.memory.saved_total_bytes
    assert copies == 2 * (numbers - 3 * SHAPE.n_embd**2)  # none is saved below the first adapter


def test_a_proof_counts_bytes_and_lookups() -> None:
    run = run_with(packed(targets="mlp"), *specs_of(["gradient_accumulation"]), model=VARIANTS["rotary"])
    lora = resolve(run.optimizations[0])
    evidence = lora.verify(traced(run), run)
    assert evidence.verdict, evidence.observed
    assert "12 of 12 matrices in 19008 of 19008 bytes; 48 of 48 lookups in forward and 40 of 40 in" in evidence.observed
    assert not lora.verify(traced(run_with(packed(targets="mlp", base="model"), model=VARIANTS["rotary"])), run).verdict


def test_an_estimate_says_what_whole_gradients_and_state_would_take() -> None:
    here, there = (estimate(run_with(one), CPU).cost.spared_bytes for one in (packed(), packed(base="model")))
    assert here == there


def test_a_checkpoint_has_the_numbers_and_packs_to_the_same_bytes() -> None:
    run = run_with(packed())
    step, other = build_step(run), build_step(run.model_copy(update={"seed": 5}))
    stored = weights_at_rest(step)
    assert stored[NAME].shape == (4 * SHAPE.n_embd, SHAPE.n_embd)
    assert stored[NAME].dtype is torch.float32
    before = digests(step)
    assert digests(other) != before
    with torch.no_grad():
        load_weights(other, stored)
    assert digests(other) == before


def test_a_checkpoint_is_read_as_the_merged_model(tmp_path: Path) -> None:
    from assay.model.weights import load_model, write_safetensors

    run = run_with(packed())
    step = build_step(run)
    with torch.no_grad():
        for name, one in step.named_parameters():
            if name.endswith("lora_B"):
                one.normal_()
    write_safetensors(weights_at_rest(step), tmp_path / "model.safetensors")
    model = load_model(tmp_path, SHAPE, lambda weights: model_weights(run, weights))
    ids = torch.arange(8).unsqueeze(0)
    torch.testing.assert_close(model.logits(ids), step.parts[0].logits(ids))


def test_the_first_step_is_that_of_the_rounded_model() -> None:
    run = run_with(packed())
    step, plain = build_step(run), build_step(run_with())
    ((ids, targets),) = micro_batches(plain)
    apart = plain.parts[0](ids, targets)
    with torch.no_grad():
        for name, one in plain.named_parameters():
            one.copy_(weights_at_rest(step)[name])
    torch.testing.assert_close(step.parts[0](ids, targets), plain.parts[0](ids, targets))
    assert not torch.equal(apart, plain.parts[0](ids, targets))


def test_a_packed_byte_that_changed_is_named() -> None:
    step = build_step(run_with(packed()))
    before = digests(step)
    with torch.no_grad():
        dict(step.named_parameters())[NAME][3, 9] ^= 1
    assert frozen_that_moved(step, before) == [NAME]


def test_losses_are_those_of_16_bits_or_of_float32() -> None:
    wide, low = (losses(run_with(packed(), *specs_of(others))) for others in ((), ("bf16_mixed",)))
    assert wide == pytest.approx(low, rel=1e-2)
    assert wide != low


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"n_expert": 2}, "most weights of a mixture are experts"),
        ({"n_hidden": 9}, "blocks of 64 numbers, and blocks.0.mlp.up of 9×32 is no multiple"),
    ],
)
def test_models_that_it_cannot_pack_are_refused(model: dict[str, Any], said: str) -> None:
    shape = ModelConfig.model_validate({**SHAPE.model_dump(), **model})
    spec = packed(rank=2, targets="attention" if shape.n_expert else "all-linear")
    with pytest.raises(Conflict, match=said):
        resolve(spec).check(run_with(spec, model=shape), CPU)


def test_ranks_and_weights_in_16_bits_are_refused() -> None:
    over = run_with(packed()).model_copy(update={"optimizations": (packed(), Spec(name="data_parallel")), "ranks": 2})
    with pytest.raises(Conflict, match="runs on one device only"):
        check(resolve_run(over), CPU)
    with pytest.raises(Conflict, match="keeps all weights in 16 bits"):
        check(run_with(packed(), *specs_of(["bf16_full"])), CPU)
    check(run_with(packed(base="model"), *specs_of(["bf16_full"])), CPU)
