"""Small tensors that are replayed together have the verdicts of the slow replay, and a fault is left to it."""

from pathlib import Path
from typing import cast

import pytest
import torch

from assay.config import ModelConfig, Run, Spec, TrainingConfig
from assay.config.run import ResolvedRun
from assay.optimizations import expected_of, resolve_run
from assay.reference.rules import AdamWRule
from assay.step.program import Step
from assay.values import replayed_updates
from assay.values.nearness import Judged
from assay.values.recorded import Recorded
from assay.values.replayed_updates import UpdateParts, _joined_updates, _states, _Step, judged_updates
from support.random_data import RandomData
from support.runs import SHAPE
from support.steps import build_step
from values.recording import record_steps

RATE = 0.01
TRAINING = TrainingConfig(batch_size=4, steps=20, warmup_steps=2)


def small_run(stack: str) -> ResolvedRun:
    specs = tuple(Spec.parse_stack(stack)) if stack else ()
    model = ModelConfig(**{**SHAPE.model_dump(), "n_layer": 2, "tie_embeddings": "mup" not in stack})
    return resolve_run(Run(model=model, training=TRAINING, optimizations=specs))


def record_of(run: ResolvedRun, folder: Path) -> Recorded:
    step: Step = build_step(run, RandomData(run))
    record_steps(step, run, folder)
    return Recorded(folder)


def joined_names(recorded: Recorded, run: ResolvedRun) -> set[str]:
    expected = expected_of(run)
    steps = [_Step.of(recorded, one.index, run, expected) for one in recorded.steps]
    parts = UpdateParts(expected.rule, recorded.first)
    return set(_joined_updates(steps, _states(recorded), list(steps[0].before), expected, parts))


def last(recorded: Recorded) -> int:
    """The step after the recorded ones, before which the optimizer's state is recorded."""
    return recorded.first + len(recorded.steps)


def by_place(judged: list[Judged]) -> dict[tuple[str, str, int], Judged]:
    return {(one.what, one.name, one.step): one for one in judged}


STACKS = [
    "",
    "sgd",
    "lion",
    "lion+cautious_decay",
    "adam",
    "mup:base_width=8",
    "cautious_decay",
    "muon",
    "muon+cautious_decay",
    "normuon",
    "normuon+cautious_decay",
    "bf16_full",
    "fp16_full",
]


@pytest.mark.parametrize("stack", STACKS)
def test_joined_updates_are_judged_as_single_ones_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stack: str
) -> None:
    run = small_run(stack)
    recorded = record_of(run, tmp_path)
    assert joined_names(recorded, run)
    _hold_against_single_ones(recorded, run, monkeypatch)


def _hold_against_single_ones(recorded: Recorded, run: ResolvedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = by_place(judged_updates(recorded, run, expected_of(run)))
    monkeypatch.setattr(replayed_updates, "_joined_updates", lambda *given: {})
    alone = by_place(judged_updates(recorded, run, expected_of(run)))
    assert joined.keys() == alone.keys()
    for place, one in alone.items():
        assert joined[place].error == pytest.approx(one.error, rel=1e-6, abs=1e-12), place
        assert joined[place].used == pytest.approx(one.used, rel=1e-6, abs=1e-9), place


@pytest.mark.parametrize("stack", ["", "lion", "bf16_full", "muon", "normuon"])
@pytest.mark.parametrize("kind", ["weight", "gradient", "state"])
def test_a_fault_in_one_tensor_is_left_to_the_slow_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, stack: str
) -> None:
    run = small_run(stack)
    recorded = record_of(run, tmp_path)
    names = joined_names(recorded, run)
    at = {"gradient": recorded.first, "weight": recorded.first + 1, "state": last(recorded)}[kind]
    found = recorded.tensors(kind, at)
    name = next(one for one in found if "mlp.up.weight" in one and not one.endswith("step"))
    found[name].add_(1e-2 * torch.ones_like(found[name]))  # the map of the file is private
    assert names - joined_names(recorded, run) == {name.partition("|")[0]}
    assert any(one.failed for one in judged_updates(recorded, run, expected_of(run)))
    _hold_against_single_ones(recorded, run, monkeypatch)


@pytest.mark.parametrize("stack", ["muon", "normuon"])
def test_matrices_that_are_orthogonalized_are_joined_and_embeddings_have_the_bounds_of_adamw(
    tmp_path: Path, stack: str
) -> None:
    run = small_run(stack)
    recorded = record_of(run, tmp_path)
    before, after = (recorded.tensors("weight", recorded.first + step) for step in (0, 1))
    hidden = {name for name, one in before.items() if name.startswith("blocks.") and one.ndim == 2}
    assert hidden <= joined_names(recorded, run)
    judged = by_place(judged_updates(recorded, run, expected_of(run)))
    assert {name for what, name, _ in judged if what == "step"} == hidden | {"all other tensors"}
    wrong = next(name for name in before if name not in hidden and before[name].ndim == 2)
    after[wrong].add_(3e-3 * (after[wrong] - before[wrong]))  # the map of the file is private
    assert [one.name for one in judged_updates(recorded, run, expected_of(run)) if one.failed] == [wrong] * 2


def test_an_update_that_equals_its_replay_has_no_parts_and_one_that_does_not_has(tmp_path: Path) -> None:
    run = small_run("bf16_full")
    recorded = record_of(run, tmp_path)
    assert {one.what for one in judged_updates(recorded, run, expected_of(run))} == {"update", "state"}
    after = recorded.tensors("weight", recorded.first + 1)
    weights = [next(one for one in after if one.endswith(end)) for end in ("mlp.up.weight", "qkv.weight")]
    for name in weights:
        after[name][:, 0] *= 1 + 2**-7
    judged = judged_updates(recorded, run, expected_of(run))
    assert {one.name for one in judged if one.what == "step"} >= set(weights)
    assert {one.name for one in judged if one.what == "update" and one.error > 0} == set(weights)


def test_tensors_with_unlike_numbers_of_steps_are_not_joined(tmp_path: Path) -> None:
    run = small_run("adam")
    recorded = record_of(run, tmp_path)
    entries = recorded.tensors("state", last(recorded))
    name = next(one for one in entries if one.endswith("mlp.up.weight|step"))
    entries[name].add_(1)
    steps = [_Step.of(recorded, one.index, run, expected_of(run)) for one in recorded.steps]
    matrices = {one for one in steps[0].before if steps[0].before[one].ndim >= 2}
    assert not joined_names(recorded, run) & matrices


@pytest.mark.parametrize(
    "shapes", [[()], [(1,), (1,)], [(), (1,)], [(1, 1)], [(1, 1), (1, 1)], [(3, 1), (1, 3)], [(2, 1, 1), (1, 4, 1)]]
)
def test_tensors_of_one_number_or_one_column_are_joined_as_well(shapes: list[tuple[int, ...]]) -> None:
    expected = expected_of(small_run(""))
    own = cast(AdamWRule, expected.rule)
    tensors = {f"own.{place}": torch.nn.Parameter(torch.randn(shape)) for place, shape in enumerate(shapes)}
    decay = own.weight_decay if len(shapes[0]) >= 2 else 0.0
    optimizer = torch.optim.AdamW(tensors.values(), RATE, (own.beta1, own.beta2), own.epsilon, decay)
    steps, states = list[_Step](), {}
    for index in range(3):
        before = {name: one.detach().clone() for name, one in tensors.items()}
        for one in tensors.values():
            one.grad = torch.randn(one.shape)
        optimizer.step()
        gradients = {name: one.grad.clone() for name, one in tensors.items() if one.grad is not None}
        after = {name: one.detach().clone() for name, one in tensors.items()}
        steps.append(_Step(index, RATE, before, after, gradients))
        for name, one in tensors.items():
            entries = {key: value.clone() for key, value in optimizer.state[one].items()}
            states[index + 1, name] = {key: (entries, key) for key in entries}
    judged = _joined_updates(steps, states, list(tensors), expected, UpdateParts(own, 0))
    assert judged.keys() == tensors.keys()
