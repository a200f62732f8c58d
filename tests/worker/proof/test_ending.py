"""The proof at a run's end: what is lost after the first traced step ends the run as without effect, and says so."""

from pathlib import Path
from typing import Any

import pytest

from assay.data import Prepared
from assay.optimizations import forget, search
from assay.records.run import RunResult
from assay.records.status import Status
from support.runs import run_folder
from support.workers import ended

pytestmark = pytest.mark.usefixtures("forked")

FADING = """
from dataclasses import replace
from assay.optimizations.{name} import {kind}

class Fading({kind}):
    def apply(self, program, run):
        after, update, done = super().apply(program, run), program.update, [0]

        def counted(step):
            done[0] += 1
            if done[0] == 4:
                fade(program, step)
            return update(step)

        return replace(after, update=counted)


def fade(program, step):
    {fade}
"""


def ended_with(corpus: Prepared, place: Path, name: str, source: str, training: dict[str, Any]) -> RunResult:
    """A run with a technique of this name and source, which the package does not have."""
    (place / "extra").mkdir()
    (place / "extra" / f"{name}.py").write_text(source)
    added = search(place / "extra")
    try:
        return ended(run_folder(place / "run", corpus, training, optimizations=name))
    finally:
        forget(added)


def faded(corpus: Prepared, place: Path, name: str, kind: str, fade: str, **training: Any) -> RunResult:
    """A run whose technique does something else from the fourth update on."""
    source = FADING.format(name=name, kind=kind, fade=fade)
    return ended_with(corpus, place, "fading", source, {"steps": 8, **training})


@pytest.mark.parametrize("memory", [False, True])
def test_a_technique_that_lasts_is_proven_until_the_end(corpus: Prepared, tmp_path: Path, memory: bool) -> None:
    training = {"steps": 6, "measure_memory": memory}
    folder = run_folder(tmp_path / "run", corpus, training, optimizations="sdpa_attention")
    result = ended(folder)
    assert (result.status, result.proven_until) == (Status.DONE, "end")
    assert ended(folder).proven_until == "end"  # a finished run, opened again


@pytest.mark.parametrize("stack", ["", "bf16_mixed", "optimizer_in_backward"])
def test_the_scale_of_gradients_at_the_end_is_on_record(corpus: Prepared, tmp_path: Path, stack: str) -> None:
    found = ended(run_folder(tmp_path / "run", corpus, {"steps": 6}, optimizations=stack)).gradients
    titles = [one.module for one in found]
    # An optimizer in backward frees each gradient before there is a norm.
    assert titles == [] if stack == "optimizer_in_backward" else titles[0] == "embedding"
    assert ("final norm" in titles) == bool(titles)
    assert all(one.gradient_rms > 0 for one in found)


def test_a_kernel_that_is_given_up_on_the_way_ends_without_effect(corpus: Prepared, tmp_path: Path) -> None:
    fade = """
    from assay.model.attention import Attention, HandCodedAttention

    for module in step.modules_of(Attention):
        module.core = HandCodedAttention(step.parts[0].config)
"""
    result = faded(corpus, tmp_path, "sdpa_attention", "SdpaAttention", fade)
    assert (result.status, result.proven_until) == (Status.NO_EFFECT, "beginning")
    assert result.reason is not None
    assert result.reason.startswith("a step in the middle of the run calls _scaled_dot_product_flash_attention")


def test_an_update_that_leaves_weights_out_is_wrong(corpus: Prepared, tmp_path: Path) -> None:
    fade = "[group['params'][-1].requires_grad_(False) for group in step.optimizer.param_groups]"
    result = faded(corpus, tmp_path, "sdpa_attention", "SdpaAttention", fade)
    assert result.status is Status.WRONG_VALUES
    assert (result.reason or "").startswith("the gradient of ")


def test_a_state_that_is_reset_ends_without_effect(corpus: Prepared, tmp_path: Path) -> None:
    result = faded(corpus, tmp_path, "sdpa_attention", "SdpaAttention", "step.optimizer.state.clear()")
    assert result.status is Status.NO_EFFECT
    assert result.reason == "the optimizer's state counts 5 updates where 8 were made"


def test_weights_that_stay_where_they_began_end_without_effect(corpus: Prepared, tmp_path: Path) -> None:
    frozen = """
from dataclasses import replace
from assay.optimizations.lion import Lion

class Fading(Lion):
    def apply(self, program, run):
        after = super().apply(program, run)
        name = "blocks.0.mlp.up.bias"

        def update(step):
            weight = dict(step.named_parameters())[name]
            before = weight.detach().clone()
            norm = program.update(step)
            weight.data.copy_(before)
            return norm

        return replace(after, update=update)
"""
    # The value check would find it in the first steps.
    result = ended_with(corpus, tmp_path, "fading", frozen, {"steps": 5, "check_values": False})
    assert result.status is Status.NO_EFFECT
    assert result.reason == "1 parameters kept their initial values through the run, blocks.0.mlp.up.bias among them"


def test_a_run_that_stopped_is_proven_at_its_beginning_only(corpus: Prepared, tmp_path: Path) -> None:
    training = {"steps": 400, "learning_rate": 1e35, "warmup_steps": 2, "gradient_clip": 0.0}
    result = ended(run_folder(tmp_path / "run", corpus, training, optimizations="activation_checkpointing"))
    assert result.status is Status.DIVERGED
    assert result.proven_until == ("beginning" if result.evidence else None)


CHANGED = """
from dataclasses import replace
from assay.optimizations.adam import Adam

class Changed(Adam):
    def apply(self, program, run):
        after = super().apply(program, run)
        evaluate, optimizer, schedule = after.evaluate, after.optimizer, after.schedule

        {change}


def moments(optimizer):
    return [one["exp_avg"] for one in optimizer.state.values() if one]
"""
ROUNDS = """
        def rounding(step, batches):
            for _, one in step.named_parameters():
                one.data.copy_(one.data.bfloat16())
            return evaluate(step, batches)

        return replace(after, evaluate=rounding)
"""
RESETS = """
        def resetting(step, batches):
            [one.zero_() for one in moments(step.optimizer)]
            return evaluate(step, batches)

        return replace(after, evaluate=resetting)
"""
DRAWS = """
        def drawing(step, batches):
            import torch

            torch.rand(1)
            return evaluate(step, batches)

        return replace(after, evaluate=drawing)
"""
SAVES_OTHERS = """
        def made(parameters):
            own = optimizer(parameters)
            honest = own.state_dict

            def state_dict():
                saved = honest()
                state = {n: {k: v.clone() for k, v in one.items()} for n, one in saved["state"].items()}
                [one.zero_() for one in moments(own)[:1]]
                return {**saved, "state": state}

            own.state_dict = state_dict
            return own

        return replace(after, optimizer=made)
"""
OTHER_RATE = """
        return replace(after, schedule=lambda step: schedule(step) * (10 if step == 5 else 1))
"""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (ROUNDS, "the last evaluation changed embedding.token.weight, which only a training step may change"),
        (RESETS, "the last evaluation changed the optimizer's exp_avg of embedding.token.weight, which only"),
        (DRAWS, "the last evaluation changed the state of the random generator, which only a training step may"),
        (SAVES_OTHERS, "the checkpoint step-00000008 does not hold the state of the run: the optimizer's exp_avg of"),
        (OTHER_RATE, "the learning rate of step 5 is"),
    ],
)
def test_a_change_beside_the_steps_ends_as_wrong_values(
    corpus: Prepared, tmp_path: Path, change: str, reason: str
) -> None:
    result = ended_with(corpus, tmp_path, "changed", CHANGED.format(change=change.strip()), {"steps": 8})
    assert result.status is Status.WRONG_VALUES
    assert result.reason is not None
    assert result.reason.startswith(reason)
