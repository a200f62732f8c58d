"""The settings on which a step's time depends, the check of the ledger, and the estimate from timed steps."""

import hashlib
import json

import pytest

from assay.config import ResolvedRun
from assay.estimator import estimate
from assay.estimator.timing.step_time import affine, at_depth, digest
from assay.hardware.detect import Machine
from assay.hardware.step_times import StepTimes, depths
from assay.optimizations import resolve_run
from support.machines import MEASURED

MACHINE = Machine(processor="any", cores=2, memory_bytes=2**34, rates={"cpu": MEASURED})


def configured(*changes: str, stack: str = "") -> ResolvedRun:
    from assay.api import configure

    return resolve_run(configure("demo", ["model.vocab_size=64", *changes], [stack] if stack else []))


def key(*changes: str, stack: str = "") -> str | None:
    return digest(configured(*changes, stack=stack), "cpu")


@pytest.mark.parametrize(
    "change",
    [
        "model.n_layer=9",
        "seed=7",
        "training.steps=5",
        "training.learning_rate=0.01",
        "training.warmup_steps=3",
        "training.eval_interval=1",
        "training.gradient_clip=0.5",
        "nudge=2",
    ],
)
def test_a_setting_that_does_not_change_a_step_shares_its_times(change: str) -> None:
    assert key(change) == key()


@pytest.mark.parametrize(
    "change",
    [
        "model.n_embd=96",
        "model.n_head=2",
        "model.context_length=96",
        "model.vocab_size=128",
        "model.dropout=0.1",
        "model.activation=gelu_tanh",
        "training.batch_size=7",
        "training.gradient_clip=0",
        "training.weight_decay=0",
        "cores=[0]",
    ],
)
def test_a_setting_that_changes_a_step_has_times_of_its_own(change: str) -> None:
    assert key(change) != key()


def test_stacks_devices_and_ranks_are_kept_apart() -> None:
    keys = {key(stack=one) for one in ("", "bf16_mixed", "bf16_mixed+sdpa_attention", "activation_checkpointing")}
    assert len(keys) == 4
    assert key(stack="sdpa_attention+bf16_mixed") == key(stack="bf16_mixed+sdpa_attention")
    assert digest(configured(), "cuda") != key()
    assert digest(configured("ranks=2", stack="data_parallel"), "cpu") is None


@pytest.mark.parametrize("stack", ["", "bf16_mixed", "gradient_accumulation:micro_batches=2", "compile", "lion"])
def test_the_ledger_of_equal_blocks_is_affine_in_their_number(stack: str) -> None:
    run = configured("model.n_layer=7", stack=stack)
    small = tuple(estimate(at_depth(run, layers), MACHINE).cost for layers in depths(7))
    assert affine(estimate(run, MACHINE).cost, small, 7)


def test_a_ledger_that_is_not_affine_is_seen() -> None:
    run = configured("model.n_layer=6", stack="activation_checkpointing:every=3")
    small = tuple(estimate(at_depth(run, layers), MACHINE).cost for layers in (3, 5))
    assert not affine(estimate(run, MACHINE).cost, small, 6)


def with_times(run: ResolvedRun, others_share: float = 0.0) -> Machine:
    key = digest(run, "cpu")
    assert key is not None
    found = StepTimes(depths=(1, 3), turns=((1.5, 2.5),) * 4, others_share=others_share)
    return MACHINE.model_copy(update={"step_times": {key: found}})


def test_the_estimate_is_from_timed_steps_where_there_are_any() -> None:
    run = configured("model.n_layer=7")
    found = estimate(run, with_times(run)).step_time
    assert found is not None
    assert (found.seconds, found.under_load) == (4.5, False)
    assert found.margin is not None
    loaded = estimate(run, with_times(run, others_share=0.4)).step_time
    assert loaded is not None
    assert loaded.under_load


def test_without_them_it_is_the_roofline() -> None:
    run = configured("model.n_layer=7")
    other = configured("model.n_layer=7", "training.batch_size=3")
    found = estimate(run, with_times(other)).step_time
    assert found is not None
    assert found.margin is None
    assert found == estimate(run, MACHINE).step_time


def test_a_ledger_that_is_not_affine_has_the_roofline() -> None:
    run = configured("model.n_layer=6", stack="activation_checkpointing:every=2")
    found = estimate(run, with_times(run)).step_time
    assert found is not None
    assert found.margin is None


def test_the_prediction_of_a_run_has_the_margin() -> None:
    run = configured("model.n_layer=7")
    assert estimate(run, with_times(run)).predicted()["step_seconds_margin"] > 0
    assert estimate(run, MACHINE).predicted()["step_seconds_margin"] is None


def test_the_prediction_of_a_run_says_under_which_load_its_steps_were_timed() -> None:
    run = configured("model.n_layer=7")
    assert not estimate(run, with_times(run)).predicted()["under_load"]
    assert estimate(run, with_times(run, others_share=0.5)).predicted()["under_load"]


def test_the_digest_of_a_stack_is_that_of_all_settings_together() -> None:
    """Digests are keys of files that were written earlier, so their text must stay."""
    run = configured("device=cpu", stack="sdpa_attention+bf16_mixed")
    decides = {
        "model": run.model.model_dump(mode="json", exclude={"n_layer", "init_from"}),
        "batch": run.sequences_per_step,
        "clips": run.training.gradient_clip > 0,
        "decays": run.training.weight_decay > 0,
        "optimizations": [one.model_dump(mode="json") for one in run.optimizations],
        "device": "cpu",
        "cores": run.cores,
    }
    whole = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]
    assert digest(run, "cpu") == whole
