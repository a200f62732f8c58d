"""Maximal update parametrization: a step's effect on hidden states does not grow with the width."""

import pytest
import torch

from assay.config import ModelConfig, Run, Spec, TrainingConfig
from assay.cost import baseline
from assay.hardware import Machine
from assay.optimizations import optimizations_of, resolve, resolve_run
from assay.training.loop import train_step
from support.configured import assert_refused
from support.peaks import assert_exact
from support.runs import SHAPE, UNTIED, run_with, without
from support.steps import build_step, losses, micro_batches, traced

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
MUP = Spec(name="mup", fields={"base_width": 8})
WIDTHS = (32, 64, 128, 256)


def _run(width: int, *specs: Spec) -> Run:
    """A run of two blocks with heads of 16, at a large learning rate."""
    model = ModelConfig(
        n_layer=2, n_head=width // 16, n_embd=width, context_length=16, vocab_size=64, tie_embeddings=False
    )
    training = TrainingConfig(
        batch_size=4, steps=9, warmup_steps=0, schedule="constant", learning_rate=0.01, gradient_clip=0.0
    )
    return resolve_run(Run(model=model, training=training, device="cpu", optimizations=specs))


def _moved(width: int, *specs: Spec) -> tuple[float, float]:
    """Root mean square by which three steps change what the head reads, and the logits of the same tokens."""
    step = build_step(_run(width, *specs))
    (model,) = step.parts
    ((ids, _),) = micro_batches(step, 7)
    with torch.no_grad():
        hidden, logits = model.hidden(ids), model.logits(ids)
    for index in range(3):
        train_step(step, index)
    with torch.no_grad():
        changes = (model.hidden(ids) - hidden, model.logits(ids) - logits)
    found, words = (float(one.square().mean().sqrt()) for one in changes)
    return found, words


def test_the_changes_of_a_step_do_not_grow_with_the_width() -> None:
    """The coordinate check of the paper's appendix D.1, over an eightfold width."""
    mup = Spec(name="mup", fields={"base_width": WIDTHS[0]})
    for kind, plain, kept in zip(
        ("hidden", "logits"),
        zip(*(_moved(width) for width in WIDTHS), strict=True),
        zip(*(_moved(width, mup) for width in WIDTHS), strict=True),
        strict=True,
    ):
        assert plain[0] == kept[0], kind
        assert plain[-1] > 3 * plain[0], (kind, plain)
        assert kept[-1] < 1.5 * kept[0], (kind, kept)


def test_at_the_base_width_it_is_the_plain_program() -> None:
    run = run_with(Spec(name="mup", fields={"base_width": SHAPE.n_embd}), model=UNTIED)
    assert losses(run) == losses(without(run))


def test_rates_initial_sizes_and_decay_are_those_of_the_table() -> None:
    run = run_with(MUP, model=UNTIED)
    step, plain = build_step(run), build_step(without(run))
    initial = dict(plain.named_parameters())
    factors = {
        name: 0.25 if name.startswith("head.projection") else 0.5
        for name, one in initial.items()
        if one.ndim == 2 and not name.startswith("embedding")
    }
    groups = {id(one): group for group in step.optimizer.param_groups for one in group["params"]}
    for name, one in step.named_parameters():
        torch.testing.assert_close(one, initial[name] * factors.get(name, 1.0), rtol=0, atol=0)
        rate, group = 0.25 if name in factors else 1.0, groups[id(one)]
        assert group["rate_factor"] == rate, name
        assert group["weight_decay"] == (run.training.weight_decay / rate if one.ndim == 2 else 0.0), name
    assert len(factors) == 4 * SHAPE.n_layer + 1


def test_it_is_proven_where_it_was_applied_and_only_there() -> None:
    run = run_with(MUP, model=UNTIED)
    evidence = resolve(MUP).verify(traced(run), run)
    assert (evidence.verdict, evidence.observed) == (True, "17 matrices of 17 at 0.25 times the rate")
    assert not resolve(MUP).verify(traced(without(run)), run).verdict


def test_the_ledger_is_the_plain_one() -> None:
    run = run_with(MUP, model=UNTIED)
    (mup,) = optimizations_of(run)
    assert mup.predict(baseline(run), run, CPU) == baseline(run)


@pytest.mark.parametrize("stack", ["mup", "mup+bf16_mixed+optimizer_in_backward"])
def test_the_peak_is_the_measured_one(stack: str) -> None:
    assert_exact({**UNTIED.model_dump(), "vocab_size": 311}, 4, stack)


@pytest.mark.parametrize(
    ("says", "model"),
    [
        ("set model.tie_embeddings=false", {}),
        ("model.init_from has others", {"tie_embeddings": False, "init_from": "somewhere"}),
        ("for dense models on one device", {"tie_embeddings": False, "n_expert": 4}),
    ],
)
def test_other_models_are_refused(says: str, model: dict[str, object]) -> None:
    assert_refused(MUP, says, **model)


def test_a_tied_weight_is_refused_also_as_a_technique() -> None:
    assert_refused(MUP, "leave out weight_tying", Spec(name="weight_tying"), tie_embeddings=False)


def test_frozen_weights_have_no_rate_to_set() -> None:
    assert_refused(MUP, "rates of weights that lora freezes", Spec(name="lora"), tie_embeddings=False)
