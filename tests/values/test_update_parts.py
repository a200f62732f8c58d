"""Parts of a lossy update: noise as large as decay passes; a wrong size and wrong decay do not."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.reference.matrix_rules import MuonRule
from assay.reference.rules import AdamWRule, LionRule, Rule
from assay.values.replayed_updates import UpdateParts

RATE, DECAY, NOISE = 0.01, 0.1, 0.02
ADAMW = AdamWRule(weight_decay=DECAY, beta1=0.9, beta2=0.99, epsilon=1e-8)
MUON = MuonRule(weight_decay=DECAY, momentum=0.95, others=ADAMW)
NAME = "blocks.0.mlp.up.weight"


def _drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


WEIGHT = 0.1 * _drawn(0, 192, 128)
STEP = 0.2 * _drawn(1, 192, 128).double()


def faults(rule: Rule, found: Tensor, replayed: Tensor, before: Tensor = WEIGHT, rate: float = RATE) -> set[str]:
    """Parts that are wrong."""
    parts = UpdateParts(rule, 0)
    (sums,) = parts.sums_of_each([before.shape], rate, before, found, replayed)
    parts.add(NAME, 0, before, sums)
    return {f"{one.what} of {one.name}" for one in parts.judged() if one.failed}


def moved(rule: Rule, step: Tensor, share: float = 1.0, size: float = 1.0) -> Tensor:
    """The weight after a step of some size, and after a share of its decay."""
    decay = rule.decayed(WEIGHT.double(), step, RATE) - WEIGHT
    return WEIGHT + share * decay - RATE * size * step


def noisy(after: Tensor) -> Tensor:
    """The same as a program whose step is rounded coarsely, in float32."""
    return (after - RATE * NOISE * STEP * _drawn(2, 192, 128)).float()


@pytest.mark.parametrize("cautious", [False, True])
def test_noise_of_a_step_is_no_fault_although_it_is_larger_than_decay(cautious: bool) -> None:
    rule = MUON.model_copy(update={"cautious": cautious})
    after = moved(rule, STEP)
    assert float((noisy(after) - after).norm()) > 0.3 * float((after - moved(rule, STEP, share=0.0)).norm())
    assert faults(rule, noisy(after), after) == set()


@pytest.mark.parametrize("kind", ["all other tensors", "all tensors by element"])
@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda rule: moved(rule, STEP, size=1.03), "step"),
        (lambda rule: moved(rule, STEP, share=0.0), "decay"),
        (lambda rule: moved(rule, STEP, share=2.0), "decay"),
    ],
    ids=["larger", "no decay", "twice the decay"],
)
def test_a_wrong_part_is_seen_through_the_noise(kind: str, change: Callable[[Rule], Tensor], part: str) -> None:
    rule = ADAMW if "element" in kind else MUON
    assert faults(rule, noisy(change(rule)), moved(rule, STEP)) == {f"{part} of {NAME}", f"{part} of {kind}"}


def test_decay_by_other_signs_is_seen_where_it_is_missing_and_where_it_is_not_due() -> None:
    rule, other = MUON.model_copy(update={"cautious": True}), _drawn(3, 192, 128).double()
    due, given = (rule.decayed(WEIGHT.double(), signs, RATE) - WEIGHT for signs in (STEP, other))
    right = moved(rule, STEP)
    for wrong in (given, due.where(given != 0, 0.0), due.where(due != 0, given)):
        assert f"decay of {NAME}" in faults(rule, noisy(right - due + wrong), right)


def test_steps_that_rounding_of_the_weight_swallows_are_no_fault() -> None:
    rate, rule = 1e-9, LionRule(weight_decay=0.0, beta1=0.9, beta2=0.99)
    gains = torch.ones(128)
    assert faults(rule, gains, gains - rate * STEP[0].sign(), gains, rate) == set()


def test_a_step_of_another_size_is_seen_in_one_of_two_steps() -> None:
    parts = UpdateParts(MUON, 4)
    for step, size in ((4, 1.0), (5, 1.02)):
        after, replayed = noisy(moved(MUON, STEP, size=size)), moved(MUON, STEP)
        (sums,) = parts.sums_of_each([WEIGHT.shape], RATE, WEIGHT, after, replayed)
        parts.add(NAME, step, WEIGHT, sums)
    assert [(one.name, one.step) for one in parts.judged() if one.failed] == [("all other tensors", 5)]
