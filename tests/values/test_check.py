"""The value check: honest programs pass it, and each kind of wrong value is named."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.config import ModelConfig, Run
from assay.config.run import Spec
from assay.model.weights import save_weights
from assay.optimizations import expected_of, resolve_run
from assay.records.evidence import ValueProof
from assay.step.program import Step
from assay.training.initial import named_weights
from assay.values.baseline import References
from assay.values.check import Checker, check_values
from assay.values.recorded import Recorded
from support.runs import SHAPE, run_with
from support.steps import CPU, build_step
from values.recording import RandomData, proof_of_values, record_steps

CHECKPOINTED = Spec(name="activation_checkpointing")
LOSSY = Spec(name="bf16_mixed")


def proven(tmp_path: Path, *specs: Spec, change: Any = None, model: ModelConfig = SHAPE, **training: Any) -> ValueProof:
    run = run_with(*specs, model=model)
    run = run.model_copy(update={"training": run.training.model_copy(update=training)})
    return proof_of_values(resolve_run(run), tmp_path, change)


def test_an_exact_technique_is_bit_equal(tmp_path: Path) -> None:
    found = proven(tmp_path, CHECKPOINTED, gradient_clip=0.05)
    assert found.verdict, found.failures
    assert found.loss_error == found.gradient_error == 0.0
    assert (found.steps, found.updates) == (3, 3)


def test_a_reassociated_technique_is_near_and_not_equal(tmp_path: Path) -> None:
    found = proven(tmp_path, Spec(name="sdpa_attention"))
    assert found.verdict, found.failures
    assert 0 < (found.gradient_error or 0.0) < 1e-5


def test_masks_in_another_order_are_compared_without_dropout(tmp_path: Path) -> None:
    noisy = SHAPE.model_copy(update={"dropout": 0.2})
    found = proven(tmp_path, Spec.parse("gradient_accumulation:micro_batches=2"), model=noisy)
    assert found.verdict, found.failures
    assert found.gradients > 0


def test_a_mixture_is_balanced_by_forward(tmp_path: Path) -> None:
    mixture = SHAPE.model_copy(update={"n_expert": 4})
    found = proven(tmp_path, Spec.parse("gradient_accumulation:micro_batches=2"), model=mixture)
    assert found.verdict, found.failures


def _with(step: Step, **seams: Any) -> Step:
    object.__setattr__(step, "program", replace(step.program, **seams))
    return step


def test_a_gradient_that_is_off_is_named(tmp_path: Path) -> None:
    def scale_one(step: Step) -> None:
        (weight,) = (one for name, one in step.named_parameters() if name == "blocks.1.mlp.up.weight")
        weight.register_hook(lambda gradient: gradient * 1.0001)

    found = proven(tmp_path, CHECKPOINTED, change=scale_one)
    assert not found.verdict
    assert "the gradient of blocks.1.mlp.up.weight in step 0" in found.failures[0]


def test_a_loss_that_is_off_is_named(tmp_path: Path) -> None:
    def shrink(step: Step) -> None:
        inner = step.program.parallel.reduce_loss
        _with(step, parallel=replace(step.program.parallel, reduce_loss=lambda loss: inner(loss) * 0.875))

    assert "the loss in step 0" in proven(tmp_path, Spec(name="sdpa_attention"), change=shrink).failures[0]


def test_a_weight_that_stands_still_is_named(tmp_path: Path) -> None:
    def forget(step: Step) -> None:
        inner, weight = step.program.update, step.named_parameters()[3][1]

        def update(step: Step) -> torch.Tensor:
            before = weight.detach().clone()
            norm = inner(step)
            with torch.no_grad():
                weight.copy_(before)
            return norm

        _with(step, update=update)

    found = proven(tmp_path, CHECKPOINTED, change=forget)
    assert any("the update of" in failure for failure in found.failures)


def test_a_learning_rate_beside_the_schedule_is_named(tmp_path: Path) -> None:
    def late(step: Step) -> None:
        inner = step.program.schedule
        _with(step, schedule=lambda index: inner(index + 1))

    assert "the learning rate of step 0" in " ".join(proven(tmp_path, CHECKPOINTED, change=late).failures)


def test_rows_that_the_seed_does_not_name_are_found(tmp_path: Path) -> None:
    def repeat(step: Step) -> None:
        inner = step.program.batches
        _with(step, batches=lambda index, share: inner(0, share))

    assert (
        "row 0 of step 1 is not the text that seed 0 selects"
        in proven(tmp_path, CHECKPOINTED, change=repeat).failures[0]
    )


def test_targets_that_are_not_shifted_are_found(tmp_path: Path) -> None:
    def unshifted(step: Step) -> None:
        inner = step.program.batches
        _with(step, batches=lambda index, share: [(ids, ids) for ids, _ in inner(index, share)])

    assert "the targets of row 0 in step 0" in proven(tmp_path, CHECKPOINTED, change=unshifted).failures[0]


def test_a_gradient_that_is_zeroed_between_micro_batches_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.training import gradients

    inner = gradients.summed_loss

    def cleared(step: Step, micro_batch: Any) -> torch.Tensor:
        for _, one in step.named_parameters():
            one.grad = None
        return inner(step, micro_batch)

    monkeypatch.setattr(gradients, "summed_loss", cleared)
    found = proven(tmp_path, Spec(name="gradient_accumulation"))
    assert not found.verdict


def test_a_switch_that_rounds_nothing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.optimizations.bf16_mixed import Bf16Mixed

    monkeypatch.setattr(Bf16Mixed, "apply", lambda self, program, run: program)
    assert "no gradient has the rounding error" in proven(tmp_path, Spec(name="bf16_mixed")).failures[0]


def test_a_technique_that_does_not_say_what_it_computes_is_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from assay.optimizations.optimization import Optimization
    from assay.optimizations.sgd import Sgd

    monkeypatch.setattr(Sgd, "expect", Optimization.expect)
    assert proven(tmp_path, Spec(name="sgd")).unchecked == "sgd does not state which values it computes"


def test_every_technique_says_what_it_computes() -> None:
    from assay.optimizations import catalogue, expected_of, resolve

    for name in catalogue():
        one = resolve(Spec(name=name))
        run = Run(model=SHAPE, ranks=2 if one.axes() else 1, optimizations=(one.spec(),))
        assert expected_of(run).unstated == (), name


def test_decay_in_the_gradient_is_replayed_in_sixteen_bits(tmp_path: Path) -> None:
    found = proven(tmp_path, Spec(name="bf16_full"), Spec(name="adam"), learning_rate=1e-3)
    assert found.verdict, found.failures


@pytest.mark.parametrize("spec", [CHECKPOINTED, LOSSY])
def test_programs_that_were_prepared_prove_the_same(tmp_path: Path, spec: Spec) -> None:
    run = resolve_run(run_with(spec))
    data = RandomData(run)
    step = build_step(run, data)
    record_steps(step, run, tmp_path)
    checker = Checker(run, data, step.program.device)  # type: ignore[arg-type]
    checker.prepare()
    built = vars(checker._references)
    assert {"near", "truth"} <= set(built), "they are built before a check asks for them"
    assert built["near"].seconds == 0.0, "a step that warms up is no part of a check"
    figures = ("verdict", "steps", "updates", "loss_error", "gradient_error", "update_error", "used")
    found, plain = checker.check(Recorded(tmp_path)), check_values(Recorded(tmp_path), run, data, CPU)  # type: ignore[arg-type]
    assert [getattr(found, one) for one in figures] == [getattr(plain, one) for one in figures]
    assert found.verdict


def test_all_checks_together_cost_the_time_so_far_in_steps_of_the_median(tmp_path: Path) -> None:
    run = resolve_run(run_with(CHECKPOINTED))
    references = References(run, expected_of(run), RandomData(run), CPU)  # type: ignore[arg-type]
    assert references.baseline_steps(3.0) is None, "no step was timed yet"
    assert references.replay_steps is None
    references.seconds_of_steps += [4.0]  # the first one is slow
    first = references.baseline_steps(9.0)
    references.seconds_of_steps += [1.0, 1.0]
    assert first == 3.0
    assert first + (references.baseline_steps(8.0) or 0.0) == 20.0
    references.near.seconds, references.truth.seconds = 6.0, 5.0
    assert references.replay_steps == 1 + (20 - 6 - 5) / 2


@pytest.mark.parametrize("nudge", [0, 1])
def test_weights_that_the_named_folder_does_not_have_are_found(tmp_path: Path, nudge: int) -> None:
    plain = run_with(CHECKPOINTED)
    given = {name: 0.5 * one.detach() for name, one in build_step(plain).named_parameters()}
    save_weights(given, SHAPE, tmp_path / "given")
    named = SHAPE.model_copy(update={"init_from": str(tmp_path / "given")})
    run = run_with(CHECKPOINTED, model=named).model_copy(update={"nudge": nudge})
    weights = named_weights(run, given)

    def begin(step: Step, off: float) -> None:
        with torch.no_grad():
            for name, one in step.named_parameters():
                one.copy_(weights[name] * (off if name == "blocks.1.mlp.up.weight" else 1.0))

    honest = proof_of_values(run, tmp_path / "honest", lambda step: begin(step, 1.0))
    assert honest.verdict, honest.failures
    (said, *_) = proof_of_values(run, tmp_path / "wrong", lambda step: begin(step, 1.001)).failures
    assert said == f"the initial weights of blocks.1.mlp.up.weight are not those of {named.init_from}"
