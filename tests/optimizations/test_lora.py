"""Low-rank adapters: what they train, what they save, and which model they are when they are merged."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.config import ModelConfig, Run, Spec
from assay.cost import Cost
from assay.estimator import estimate
from assay.estimator.every_rank import EveryRank
from assay.hardware import Machine
from assay.model import GPT
from assay.model.adapted_linear import AdaptedLinear, adapt
from assay.optimizations import Conflict, check, expected_of, model_weights, numerics_of, resolve, resolve_run
from assay.optimizations.optimization import Numerics
from assay.reference.merged_weights import Adapters
from assay.report.estimate import EstimateView
from assay.worker.proof.moved import digests, frozen_that_moved
from support.runs import SHAPE, VARIANTS, run_with, without
from support.steps import build_step, measured_peak, micro_batches, saved_bytes, traced

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
LORA = resolve(Spec(name="lora")).spec()
LAYERS = ("attention.qkv", "attention.projection", "mlp.up", "mlp.down")


def adapted(**fields: Any) -> Spec:
    """Adapters with some fields."""
    return resolve(Spec(name="lora", fields=fields)).spec()


PEAKS = [
    ("baseline", adapted(targets="mlp", rank=4), ()),
    ("post", adapted(targets="attention"), ("bf16_mixed",)),
    ("rotary", LORA, ("sdpa_attention", "bf16_mixed", "activation_checkpointing")),
    ("untied", adapted(targets="mlp"), ("selective_checkpointing", "gradient_accumulation", "fused_adamw")),
]
"""Variants of the model with a stack."""


@pytest.mark.parametrize(
    ("variant", "spec", "others"),
    [*PEAKS, *(pytest.param(*one, marks=pytest.mark.slow) for one in [(v, LORA, ()) for v in VARIANTS])],
)
def test_the_peak_and_what_is_saved_are_those_of_the_step(variant: str, spec: Spec, others: tuple[str, ...]) -> None:
    run = run_with(spec, *(resolve(Spec(name=name)).spec() for name in others), model=VARIANTS[variant])
    predicted = estimate(run, CPU).timeline
    _, peak, instant = measured_peak(run)
    assert (predicted.peak.nbytes, predicted.peak.label) == (peak, instant)
    if not others:
        assert predicted.saved_bytes == saved_bytes(build_step(run))


@pytest.mark.parametrize("fields", [{}, {"n_hidden": 20}, {"expert_capacity": 1.0}])
def test_frozen_experts_save_what_their_input_needs_alone(fields: dict[str, Any]) -> None:
    mixture = ModelConfig.model_validate({**SHAPE.model_dump(), "n_expert": 4, **fields})
    run = run_with(adapted(targets="attention"), model=mixture)
    predicted = estimate(run, CPU).timeline
    _, peak, instant = measured_peak(run)
    assert (predicted.peak.nbytes, predicted.peak.label) == (peak, instant)
    assert predicted.saved_bytes == saved_bytes(build_step(run))


def test_gradients_and_state_are_those_of_the_adapters_alone() -> None:
    trace, plain = traced(run_with(LORA)), traced(run_with())
    numbers = 8 * SHAPE.n_layer * SHAPE.n_embd * ((1 + 3) + (1 + 1) + (1 + 4) + (4 + 1))
    assert sum(one.whole_bytes for one in trace.trained) == 4 * numbers == trace.memory.gradient_bytes
    assert trace.memory.parameter_bytes == plain.memory.parameter_bytes + 4 * numbers
    assert trace.memory.optimizer_state_bytes == 2 * 4 * numbers + 4 * 2 * len(LAYERS) * SHAPE.n_layer


def test_it_is_proven_where_it_was_applied_and_only_there() -> None:
    run = run_with(adapted(targets="attention", rank=4))
    evidence = resolve(run.optimizations[0]).verify(traced(run), run)
    assert evidence.verdict, evidence.observed
    assert "in 16 of 16 matrices of adapters of rank 4; 0 other weights trained or updated" in evidence.observed
    for other in (without(run), run_with(adapted(targets="attention", rank=2)), run_with(adapted(rank=4))):
        assert not resolve(run.optimizations[0]).verify(traced(other), run).verdict


def test_the_factor_is_alpha_over_rank_in_the_program_and_in_the_reference() -> None:
    run = run_with(adapted(rank=4, alpha=6.0))
    (part,) = build_step(run).parts
    assert {one.scale for one in part.modules() if isinstance(one, AdaptedLinear)} == {1.5}
    stated = expected_of(run).adapters
    assert stated is not None
    assert stated.scale == 1.5


def test_each_a_begins_as_a_linear_layer_with_numbers_of_its_own() -> None:
    """The value check has the same formula from the program, so that it is told here once more."""
    (part,) = build_step(run_with(LORA)).parts
    first = {name: one for name, one in part.named_parameters() if name.endswith("lora_A")}
    assert len({tuple(one.flatten()[:4].tolist()) for one in first.values()}) == len(first) == 16
    for name, one in first.items():
        bound = one.shape[1] ** -0.5
        assert 0.95 * bound < float(one.abs().max()) <= bound, name


def _saved(cost: Cost, site: str) -> set[str]:
    return {name for one in cost.tape if one.site == site for name in one.saves}


def test_nothing_is_saved_below_the_first_adapter() -> None:
    cost = estimate(run_with(adapted(targets="mlp")), CPU).cost
    for site in ("embedding", "blocks.0.attention_norm", "blocks.0.attention.core", "blocks.0.mlp_norm"):
        assert not _saved(cost, site)
    assert _saved(cost, "blocks.1.attention.core")


def test_a_frozen_layer_without_an_adapter_saves_no_input_and_multiplies_less() -> None:
    frozen, whole = (estimate(run_with(*specs), CPU).cost for specs in ((adapted(targets="attention"),), ()))
    assert _saved(frozen, "blocks.1.mlp.up") == {"blocks.1.mlp.up.weight"}
    assert len(_saved(whole, "blocks.1.mlp.up")) == 2
    (here,), (there,) = ([one.flops for one in each.tape if one.site == "blocks.1.mlp.up"] for each in (frozen, whole))
    assert (here.forward, here.backward) == (there.forward, there.backward // 2)


def test_a_ledger_stays_frozen_whatever_is_rewritten() -> None:
    cost = estimate(run_with(LORA), CPU).cost
    assert replace(cost).tape == cost.tape
    plain = estimate(run_with(), CPU).cost
    assert plain.trained == plain.pieces


@pytest.fixture
def adapters() -> Adapters:
    """Adapters on two layers of the small model."""
    return Adapters(layers=("blocks.0.attention.qkv", "blocks.3.mlp.down"), rank=3, scale=1.5)


def test_the_reference_has_the_values_of_the_adapted_model(adapters: Adapters) -> None:
    torch.manual_seed(0)
    model, plain = GPT(SHAPE).double(), GPT(SHAPE).double()
    given = {name: one.detach().clone() for name, one in model.named_parameters()}
    adapt(model, adapters.layers, adapters.rank, adapters.scale)
    for name, shape in adapters.shapes(SHAPE).items():
        given[name] = torch.randn(shape, dtype=torch.float64)
        model.get_parameter(name).data = given[name].clone()
    plain.load_state_dict(adapters.merged(given), strict=False)
    ((ids, targets),) = micro_batches(build_step(run_with()))
    losses = [one(ids, targets) for one in (model, plain)]
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(*losses)
    of_plain = {name: one.grad for name, one in plain.named_parameters() if one.grad is not None}
    wanted = adapters.gradients(of_plain, given)
    found = {name: one.grad for name, one in model.named_parameters() if one.grad is not None}
    assert found.keys() == wanted.keys() == adapters.shapes(SHAPE).keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient)


def test_a_checkpoint_is_read_as_the_merged_model(tmp_path: Path) -> None:
    from assay.errors import UsageError
    from assay.model.weights import load_model, write_safetensors
    from assay.training.checkpoints.state import weights_at_rest

    run = run_with(LORA)
    step = build_step(run)
    with torch.no_grad():
        for name, one in step.named_parameters():
            if name.endswith("lora_B"):
                one.normal_()
    write_safetensors(weights_at_rest(step), tmp_path / "model.safetensors")
    model = load_model(tmp_path, SHAPE, lambda weights: model_weights(run, weights))
    ids = torch.arange(8).unsqueeze(0)
    torch.testing.assert_close(model.logits(ids), step.parts[0].logits(ids))
    with pytest.raises(UsageError, match="the configuration lacks"):
        load_model(tmp_path, SHAPE)


def test_the_first_step_is_that_of_the_given_model() -> None:
    ((ids, targets),) = micro_batches(build_step(run_with()))
    plain, here = (build_step(run_with(*specs)).parts[0](ids, targets) for specs in ((), (LORA,)))
    assert torch.equal(plain, here)


def test_a_frozen_weight_that_moved_is_named() -> None:
    step = build_step(run_with(LORA))
    before = digests(step)
    weights = dict(step.named_parameters())
    with torch.no_grad():
        weights["blocks.0.mlp.up.lora_A"].add_(1.0)
        assert frozen_that_moved(step, before) == []
        weights["blocks.0.mlp.up.weight"][0, 0] += 1.0
    assert frozen_that_moved(step, before) == ["blocks.0.mlp.up.weight"]


def test_an_estimate_says_what_stays() -> None:
    every = EveryRank((estimate(run_with(LORA), CPU),))
    text = "\n".join(one for one in EstimateView(every).blocks() if isinstance(one, str))
    assert "Frozen weights leave out" in text
    assert "saved for backward stays" in text
    plain = EveryRank((estimate(run_with(), CPU),))
    assert "Frozen" not in "\n".join(one for one in EstimateView(plain).blocks() if isinstance(one, str))


def test_it_says_where_it_learns_little_and_what_its_loss_is() -> None:
    (said,) = resolve(LORA).remarks(run_with(LORA))
    assert "beside random weights" in said
    begun = SHAPE.model_copy(update={"init_from": "somewhere"})
    assert resolve(LORA).remarks(run_with(LORA, model=begun)) == ()
    assert numerics_of(run_with(LORA)) is Numerics.DIFFERENT_TRAINING


@pytest.mark.parametrize(
    ("spec", "model", "said"),
    [
        (adapted(rank=64), SHAPE, "choose at most 32"),
        (LORA, SHAPE.model_copy(update={"n_expert": 2}), "use lora:targets=attention"),
    ],
)
def test_models_that_it_cannot_adapt_are_refused(spec: Spec, model: ModelConfig, said: str) -> None:
    with pytest.raises(Conflict, match=said):
        resolve(spec).check(run_with(spec, model=model), CPU)


def test_it_is_refused_beside_what_divides_or_replaces_its_layers() -> None:
    def over(name: str) -> Run:
        return run_with(LORA).model_copy(update={"optimizations": (LORA, Spec(name=name)), "ranks": 2})

    for name in ("data_parallel", "zero_optimizer", "fully_sharded"):
        check(resolve_run(over(name)), CPU)
    for name in ("tensor_parallel", "pipeline_parallel", "context_parallel"):
        with pytest.raises(Conflict, match="use data_parallel, zero_optimizer or fully_sharded"):
            check(resolve_run(over(name)), CPU)
    with pytest.raises(Conflict, match="peak is not known"):
        check(run_with(LORA, resolve(Spec(name="compile")).spec()), CPU)
    eight = resolve(Spec(name="adamw_8bit")).spec()
    assert "8-bit state" in resolve(LORA).excludes(run_with(LORA, eight))
    wide = SHAPE.model_copy(update={"n_embd": 512})
    assert "8-bit state" not in resolve(LORA).excludes(run_with(LORA, eight, model=wide))
